"""Status, alarms, hashes, snapshots and free space, on both servers."""

import hashlib
import itertools
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from grpc import RpcError, StatusCode

from leasehold.engine.backup import MAX_BACKUPS
from leasehold.wire.maintenance_pb2 import CORRUPT, NOSPACE, AlarmRequest, DowngradeRequest
from leasehold.wire.rpc_pb2 import LeaseKeepAliveRequest
from tests.conformance import operators
from tests.conformance.client import (
    LEASE_NOT_FOUND,
    Client,
    Granter,
    delete_op,
    fails,
    header,
    prefix_end,
    put_op,
    range_op,
)
from tests.conformance.conftest import COMMANDS, NO_ETCD
from tests.conformance.operators import NO_SPACE, Operator
from tests.support.servers import etcd_program, leasehold_command, running

COMPACTED: Final = "etcdserver: mvcc: required revision has been compacted"
FUTURE: Final = "etcdserver: mvcc: required revision is a future revision"
QUOTA_BYTES: Final = 4 * 1024 * 1024
QUOTAS: Final = {"real": ["--quota-backend-bytes", str(QUOTA_BYTES)], "ours": ["--quota", "4MiB"]}
WAIT_S: Final = 20.0
LARGE: Final = b"v" * 256 * 1024


@pytest.fixture
def operator(client: Client) -> Operator:
    return Operator(client)


Start = Callable[[], AbstractContextManager[Client]]


@pytest.fixture(params=COMMANDS)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Start a server with a small quota, and, called again, start it again."""
    kind: str = request.param
    if kind == "real" and etcd_program("etcd") is None:
        pytest.skip(NO_ETCD)

    def command(_: Path, port: int) -> list[str]:
        return [*COMMANDS[kind](tmp_path / "data", port), *QUOTAS[kind]]

    @contextmanager
    def start() -> Iterator[Client]:
        with running(command, tmp_path) as server:
            client = Client(server.endpoint)
            yield client
            client.close()

    return start


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
    client.range(key)
    assert operator.status().raftIndex == seen[-1]


def test_index_and_term_do_not_go_back_over_a_restart(small: Start) -> None:
    with small() as client:
        client.put(b"k", b"v")
        before = Operator(client).status()
    with small() as client:
        after = Operator(client).status()
    assert after.raftIndex > before.raftIndex
    assert after.raftTerm > before.raftTerm
    assert (after.leader, after.header) == (before.leader, before.header)


# Alarms.


def test_an_alarm_is_raised_listed_and_switched_off(client: Client, operator: Operator) -> None:
    me = operator.me()
    assert operator.alarms() == []
    for kind in (NOSPACE, CORRUPT):
        assert operator.activate(kind, me) == [(me, kind)]
        assert operator.activate(kind, me) == [(me, kind)]
        assert operator.alarms() == operator.alarms(kind) == [(me, kind)]
        assert operator.alarms(NOSPACE + CORRUPT - kind) == []
        assert operator.deactivate(kind, 5) == []
        assert operator.deactivate(kind, me) == [(me, kind)]
        assert operator.deactivate(kind, me) == []
        assert operator.alarms() == []


def test_an_alarm_of_no_kind_is_none(operator: Operator) -> None:
    assert operator.activate(0, operator.me()) == []
    assert operator.deactivate(0, operator.me()) == []
    assert operator.alarms() == []


def test_alarms_may_be_those_of_others(client: Client, operator: Operator, key: bytes) -> None:
    try:
        assert operator.activate(NOSPACE, 7) == [(7, NOSPACE)]
        assert operator.activate(NOSPACE, 0) == [(0, NOSPACE)]
        assert sorted(operator.alarms()) == [(0, NOSPACE), (7, NOSPACE)]
        with fails(StatusCode.RESOURCE_EXHAUSTED, NO_SPACE):
            client.put(key, b"v")
    finally:
        operator.disarm()
    client.put(key, b"v")


@pytest.mark.parametrize(("kind", "name"), [(NOSPACE, "NOSPACE"), (CORRUPT, "CORRUPT")])
def test_status_and_health_tell_of_alarms(
    client: Client, operator: Operator, kind: int, name: str
) -> None:
    me = operator.me()
    with operator.alarmed(kind, me):
        assert list(operator.status().errors) == [f"memberID:{me} alarm:{name} "]
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"http://{client.endpoint}/health")
        told = json.loads(error.value.read())
        error.value.close()
    assert error.value.code == 503
    assert told == {"health": "false", "reason": f"ALARM {name}"}
    assert list(operator.status().errors) == []
    with urllib.request.urlopen(f"http://{client.endpoint}/health") as answer:
        assert json.loads(answer.read())["health"] == "true"


def test_without_space_nothing_grows_and_everything_else_goes_on(
    client: Client, operator: Operator, grant: Granter, key: bytes
) -> None:
    lease = grant(600)
    for name in (b"a", b"b", b"c"):
        client.put(key + name, b"v", lease=lease if name == b"c" else 0)
    start = client.revision()
    with operator.alarmed(NOSPACE, operator.me()):
        for refused in (
            partial(client.put, key, b"v"),
            partial(client.put, key, b"v", lease=77),
            partial(client.put, key + b"a", b""),
            partial(client.txn, success=[put_op(key)]),
            partial(client.txn, success=[delete_op(key)], failure=[put_op(key)]),
            partial(client.grant, 600),
            partial(client.grant, 600, lease),
        ):
            with fails(StatusCode.RESOURCE_EXHAUSTED, NO_SPACE):
                refused()
        with fails(StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided"):
            client.put(b"", b"v")
        assert client.revision() == start
        assert client.range(key, prefix_end(key)).count == 3
        assert client.txn(success=[range_op(key + b"a")]).responses[0].response_range.count == 1
        assert client.delete(key + b"a").deleted == 1
        assert client.txn(success=[delete_op(key + b"b")]).header == header(start + 2)
        assert client.time_to_live(lease).TTL > 0
        with client.keep_alive() as renewing:
            renewing.send(LeaseKeepAliveRequest(ID=lease))
            assert renewing.receive().TTL == 600
        assert client.compact(start).header == header(start + 2)
        assert client.revoke(lease).header == header(start + 3)
        with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
            client.revoke(lease)
        assert operator.hash_kv().compact_revision == start
        operator.defragment()
    assert client.put(key, b"v").header == header(start + 4)


def test_of_what_is_corrupt_nothing_changes(
    client: Client, operator: Operator, grant: Granter, key: bytes
) -> None:
    lease = grant(600)
    client.put(key, b"v")
    start = client.revision()
    with operator.alarmed(CORRUPT, operator.me()):
        for refused in (
            partial(client.put, key, b"v"),
            partial(client.delete, key),
            partial(client.txn, success=[put_op(key)]),
            partial(client.txn, success=[delete_op(key)]),
            partial(client.compact, start),
            partial(client.grant, 600),
            partial(client.revoke, lease),
        ):
            with fails(StatusCode.DATA_LOSS, operators.CORRUPT):
                refused()
        assert client.range(key).kvs[0].value == b"v"
        assert client.txn(success=[range_op(key)]).responses[0].response_range.count == 1
        assert client.time_to_live(lease).TTL > 0
    assert client.put(key, b"v").header == header(start + 1)


@pytest.mark.parametrize("kind", [NOSPACE, CORRUPT])
def test_an_alarm_outlives_a_restart(small: Start, kind: int) -> None:
    with small() as client:
        client.put(b"k", b"v")
        me = Operator(client).me()
        Operator(client).activate(kind, me)
    with small() as client:
        operator = Operator(client)
        assert operator.alarms() == [(me, kind)]
        with pytest.raises(RpcError):
            client.put(b"k", b"w")
        operator.deactivate(kind, me)
        client.put(b"k", b"w")
    with small() as client:
        assert Operator(client).alarms() == []


def test_the_quota_raises_an_alarm_that_stays_when_there_is_room_again(small: Start) -> None:
    with small() as client:
        operator = Operator(client)
        _fill(client)
        me = operator.me()
        assert _until(lambda: operator.alarms() == [(me, NOSPACE)])
        client.delete(b"large-", b"large.")
        client.compact(client.revision(), physical=True)
        operator.defragment()
        assert operator.status().dbSize < QUOTA_BYTES / 2
        with fails(StatusCode.RESOURCE_EXHAUSTED, NO_SPACE):
            client.put(b"k", b"v")
        with fails(StatusCode.RESOURCE_EXHAUSTED, NO_SPACE):
            client.grant(600)
        operator.deactivate(NOSPACE, me)
        client.put(b"k", b"v")
        assert operator.alarms() == []
        _fill(client)  # and all over again
        assert _until(lambda: operator.alarms() == [(me, NOSPACE)])


def _fill(client: Client) -> None:
    """Put until it is refused; etcd measures itself ten times a second, and takes more meanwhile."""
    give_up_at = time.monotonic() + WAIT_S
    for number in itertools.count():
        assert time.monotonic() < give_up_at, "the quota is not kept"
        try:
            client.put(b"large-%d" % number, LARGE)
        except RpcError as error:
            if (error.code(), error.details()) != (StatusCode.RESOURCE_EXHAUSTED, NO_SPACE):
                raise
            return


def _until(condition: Callable[[], bool]) -> bool:
    """Ask again and again: etcd writes a moment after it answers, ours raises alarms so."""
    give_up_at = time.monotonic() + WAIT_S
    while not (is_so := condition()) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return is_so


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
    assert operator.hash().hash == operator.hash().hash


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

        for _ in range(MAX_BACKUPS + 1):
            snapshot = Operator(client).snapshot()
            first = next(snapshot)
            assert first.remaining_bytes > 10 * 1024 * 1024
            assert len(copies()) == 1
            snapshot.close()
            assert _until(lambda: not copies())
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
        assert _until(lambda: operator.status().dbSize > 12 * len(LARGE))
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


def test_ours_survives_what_ends_a_real_etcd(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        client = Client(server.endpoint)
        for request in (AlarmRequest(action=3), AlarmRequest(action=1, alarm=3)):  # type: ignore[arg-type]
            with pytest.raises(RpcError) as error:
                client.raw("/etcdserverpb.Maintenance/Alarm", request.SerializeToString())
            assert error.value.code() == StatusCode.INVALID_ARGUMENT
        client.put(b"k", b"v")
        client.close()
