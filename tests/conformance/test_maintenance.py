"""Status, hashes, snapshots and free space, on both servers."""

import hashlib
from pathlib import Path
from typing import Final

import pytest
from grpc import StatusCode

from leasehold.store.backup import MAX_SNAPSHOTS
from leasehold.wire.maintenance_pb2 import DowngradeRequest
from tests.conformance.client import (
    Client,
    Granter,
    fails,
    header,
)
from tests.conformance.operators import Operator, Start, until
from tests.support.servers import leasehold_command, running

COMPACTED: Final = "etcdserver: mvcc: required revision has been compacted"
FUTURE: Final = "etcdserver: mvcc: required revision is a future revision"
LARGE: Final = b"v" * 256 * 1024


# Status.


def test_status(client: Client, operator: Operator) -> None:
    client.put(b"k", b"v")
    revision = client.revision()
    status = operator.status()
    assert status.header == header(revision)
    assert status.version == "3.5.1"
    assert status.leader == operator.me()
    assert 0 < status.dbSizeInUse <= status.dbSize
    assert status.raftIndex == status.raftAppliedIndex > 0
    assert status.raftTerm > 0
    assert not status.isLearner
    assert list(status.errors) == []


def test_the_raft_index_grows_with_every_write_and_with_nothing_else(
    client: Client, operator: Operator, grant: Granter, key: bytes
) -> None:
    lease = grant(600)
    seen = [operator.status().raftIndex]
    client.put(key, b"v")
    seen.append(operator.status().raftIndex)
    client.delete(key)
    seen.append(operator.status().raftIndex)
    client.revoke(lease)
    seen.append(operator.status().raftIndex)
    assert seen == sorted(set(seen))

    def is_left_by_reading() -> bool:
        before = operator.status().raftIndex
        client.range(key)
        return operator.status().raftIndex == before

    # Not at once: a lease that another test has left may end meanwhile, which is a write.
    assert until(is_left_by_reading)


def test_index_and_term_do_not_go_back_over_a_restart(small: Start) -> None:
    with small() as client:
        client.put(b"k", b"v")
        before = Operator(client).status()
    with small() as client:
        after = Operator(client).status()
    assert after.raftIndex > before.raftIndex
    assert after.raftTerm > before.raftTerm
    assert (after.leader, after.header) == (before.leader, before.header)


# Hashes.


def test_equal_keys_have_equal_hashes_whatever_became_of_the_rest(
    client: Client, operator: Operator, key: bytes
) -> None:
    client.put(key, b"1")
    first = client.revision()
    before = operator.hash_kv()
    assert before == operator.hash_kv(first)
    client.put(key, b"2")
    assert operator.hash_kv().hash != before.hash
    assert operator.hash_kv(first).hash == before.hash
    assert operator.hash_kv(first).header == header(first + 1)


def test_no_hash_is_given_of_what_is_compacted_or_has_yet_to_come(
    client: Client, operator: Operator, key: bytes
) -> None:
    for _ in range(4):
        client.put(key, b"v")
    last = client.revision()
    client.compact(last - 2, physical=True)
    for revision in (1, last - 3, last - 2):  # in etcd, the compacted revision is one of them
        with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
            operator.hash_kv(revision)
    with fails(StatusCode.OUT_OF_RANGE, FUTURE):
        operator.hash_kv(last + 1)
    answer = operator.hash_kv(last - 1)
    assert (answer.header, answer.compact_revision) == (header(last), last - 2)
    assert operator.hash_kv(-1).compact_revision == last - 2


def test_hashes_are_the_same_after_a_restart(small: Start) -> None:
    with small() as client:
        operator = Operator(client)
        assert operator.hash_kv().compact_revision == -1
        lease = client.grant(600).ID
        client.put_all([b"k%d" % number for number in range(2_000)], b"v")
        client.put(b"leased", b"v", lease=lease)
        middle = client.revision()
        client.delete(b"k1", b"k2")
        client.compact(middle - 5, physical=True)
        before = [operator.hash_kv(revision).hash for revision in (0, middle - 1, middle)]
        assert len(set(before)) == 3
        # It covers leases, and what etcd writes after its start, which may come between two calls.
        assert any(operator.hash().hash == operator.hash().hash for _ in range(3))
        whole = operator.hash().hash
    with small() as client:
        operator = Operator(client)
        after = [operator.hash_kv(revision).hash for revision in (0, middle - 1, middle)]
        assert after == before
        if not _is_real(client):  # etcd's covers what a restart changes as well
            assert operator.hash().hash == whole


def _is_real(client: Client) -> bool:
    (member,) = Operator(client).members().members
    return list(member.peerURLs) != list(member.clientURLs)


# Snapshots and free space.


def test_a_snapshot_is_a_file_and_its_checksum(
    client: Client, operator: Operator, key: bytes
) -> None:
    for number in range(20):
        client.put(key + b"%d" % number, bytes(64 * 1024))
    *pieces, last = operator.snapshot()
    whole = b"".join(piece.blob for piece in pieces)
    assert len(whole) % 512 == 0
    left = len(whole)
    for piece in pieces:
        left -= len(piece.blob)
        assert piece.remaining_bytes == left
        assert not piece.HasField("header")
    assert left == 0
    assert last.remaining_bytes == 0
    assert last.blob == hashlib.sha256(whole).digest()


def test_nothing_is_left_of_a_snapshot_whose_client_went_away(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        client = Client(server.endpoint)
        for number in range(64):
            client.put(b"%d" % number, LARGE)

        def copies() -> list[str]:
            fds = Path(f"/proc/{server.process.pid}/fd").iterdir()
            return [name for name in map(_target, fds) if "snapshot-" in name]

        for _ in range(MAX_SNAPSHOTS + 1):
            snapshot = Operator(client).snapshot()
            first = next(snapshot)
            assert first.remaining_bytes > 10 * 1024 * 1024
            assert len(copies()) == 1
            snapshot.close()
            assert until(lambda: not copies())
        assert list(tmp_path.rglob("snapshot-*")) == []
        client.close()


def _target(fd: Path) -> str:
    try:
        return str(fd.readlink())
    except OSError:  # it was closed meanwhile
        return ""


def test_defragmentation_gives_space_back(small: Start) -> None:
    with small() as client:
        operator = Operator(client)
        for _ in range(12):
            client.put(b"k", LARGE)
        assert until(lambda: operator.status().dbSize > 12 * len(LARGE))
        full = operator.status().dbSize
        client.compact(client.revision(), physical=True)
        assert operator.defragment() == b""
        status = operator.status()
        assert status.dbSizeInUse <= status.dbSize < full / 3
        assert client.range(b"k").kvs[0].value == LARGE
        client.put(b"k", b"v")


# What only a cluster can do.


def test_only_who_leads_may_become_the_leader(operator: Operator) -> None:
    assert operator.move_leader(operator.me()) == b""
    for member in (0, 5):
        with fails(StatusCode.FAILED_PRECONDITION, "etcdserver: bad leader transferee"):
            operator.move_leader(member)


@pytest.mark.parametrize("version", ["3.4", "3.4.0", "3.4.27"])
def test_a_downgrade_to_the_version_before_would_be_valid(
    client: Client, operator: Operator, version: str
) -> None:
    answer = operator.downgrade(DowngradeRequest.VALIDATE, version)
    assert (answer.header, answer.version) == (header(client.revision()), "3.5.0")


@pytest.mark.parametrize("action", [DowngradeRequest.VALIDATE, DowngradeRequest.ENABLE])
@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("", "wrong downgrade target version format"),
        ("x", "wrong downgrade target version format"),
        ("3", "wrong downgrade target version format"),
        ("3.4.0.1", "wrong downgrade target version format"),
        ("3.3", "invalid downgrade target version"),
        ("3.5.0", "invalid downgrade target version"),
        ("3.6", "invalid downgrade target version"),
        ("4.4", "invalid downgrade target version"),
    ],
)
def test_no_other_downgrade_is(operator: Operator, action: int, version: str, text: str) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, f"etcdserver: {text}"):
        operator.downgrade(action, version)


def test_there_is_no_downgrade_to_cancel(operator: Operator) -> None:
    with fails(StatusCode.FAILED_PRECONDITION, "etcdserver: no inflight downgrade job"):
        operator.downgrade(DowngradeRequest.CANCEL, "")
