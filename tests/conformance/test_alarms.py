"""Alarms, on both servers: what they forbid, and how long."""

import itertools
import json
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from grpc import RpcError, StatusCode

from leasehold.wire.maintenance_pb2 import CORRUPT, NOSPACE, AlarmRequest
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
from tests.conformance.operators import NO_SPACE, QUOTA_BYTES, WAIT_S, Operator, Start, until
from tests.support.servers import leasehold_command, running

LARGE: Final = b"v" * 256 * 1024


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
        with urllib.request.urlopen(f"http://{client.endpoint}/health?exclude={name}") as answer:
            assert json.loads(answer.read()) == {"health": "true", "reason": ""}
        with pytest.raises(urllib.error.HTTPError) as other:
            urllib.request.urlopen(f"http://{client.endpoint}/health?exclude=x&serializable=true")
        other.value.close()
    assert error.value.code == other.value.code == 503
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
            partial(client.txn, failure=[put_op(key)]),
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
        assert until(lambda: operator.alarms() == [(me, NOSPACE)])
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
        assert until(lambda: operator.alarms() == [(me, NOSPACE)])


def _fill(client: Client) -> None:
    """Put until it is refused; etcd measures itself ten times a second, and takes more."""
    give_up_at = time.monotonic() + WAIT_S
    for number in itertools.count():
        assert time.monotonic() < give_up_at, "the quota is not kept"
        try:
            client.put(b"large-%d" % number, LARGE)
        except RpcError as error:
            if (error.code(), error.details()) != (StatusCode.RESOURCE_EXHAUSTED, NO_SPACE):
                raise
            return


def test_ours_survives_what_ends_a_real_etcd(tmp_path: Path) -> None:
    with running(leasehold_command, tmp_path) as server:
        client = Client(server.endpoint)
        for request in (AlarmRequest(action=3), AlarmRequest(action=1, alarm=3)):  # type: ignore[arg-type]
            with pytest.raises(RpcError) as error:
                client.raw("/etcdserverpb.Maintenance/Alarm", request.SerializeToString())
            assert error.value.code() == StatusCode.INVALID_ARGUMENT
        client.put(b"k", b"v")
        client.close()
