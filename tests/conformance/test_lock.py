"""etcd's Lock service: who has a lock, who waits, and what becomes of those who go away."""

import time

import grpc
import pytest

from tests.conformance.client import (
    CALL_S,
    LEASE_NOT_FOUND,
    Client,
    Granter,
    fails,
    header,
    put_op,
)
from tests.conformance.locks import EXPIRED, OWN_CONNECTION, Locks, code_of, until

UNKNOWN = grpc.StatusCode.UNKNOWN
SESSION_S = 60


@pytest.fixture
def locks(client: Client) -> Locks:
    return Locks(client)


def key_for(name: bytes, lease: int) -> bytes:
    return b"%b/%x" % (name, lease)


def test_a_free_lock_is_an_empty_key_of_the_lease_in_lower_hex(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    lease, start = grant(lease=0xABCDEF0123), client.revision()
    answer = locks.lock(key, lease)
    assert (answer.header, answer.key) == (header(start + 1), key + b"/abcdef0123")
    [pair] = client.range(answer.key).kvs
    assert (pair.value, pair.lease, pair.create_revision) == (b"", lease, start + 1)


@pytest.mark.parametrize("lease", [-1, -0x1234ABCD, -(2**63)])
def test_a_negative_lease_is_written_with_its_sign(
    locks: Locks, grant: Granter, key: bytes, lease: int
) -> None:
    answer = locks.lock(key, grant(lease=lease))
    assert answer.key == key + b"/-%x" % -lease


def test_the_empty_name_is_a_name(locks: Locks, client: Client, grant: Granter) -> None:
    lease = grant()
    answer = locks.lock(b"", lease)
    assert answer.key == b"/%x" % lease
    locks.unlock(answer.key)
    assert client.range(answer.key).count == 0


def test_a_caller_without_a_lease_gets_one_of_sixty_seconds(
    locks: Locks, client: Client, key: bytes
) -> None:
    began = time.monotonic()
    answer = locks.lock(key)
    [pair] = client.range(answer.key).kvs
    left = client.time_to_live(pair.lease, keys=True)
    took_s = time.monotonic() - began
    client.revoke(pair.lease)
    assert answer.key == key_for(key, pair.lease)
    assert (left.grantedTTL, list(left.keys)) == (SESSION_S, [answer.key])
    assert SESSION_S - 1 - took_s <= left.TTL <= SESSION_S


def test_the_same_lease_again_has_the_same_key(locks: Locks, grant: Granter, key: bytes) -> None:
    lease = grant()
    first = locks.lock(key, lease)
    assert locks.lock(key, lease) == first


def test_the_same_lease_again_has_the_lock_while_others_wait(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    lease = grant()
    first = locks.lock(key, lease)
    waiting = locks.begin_lock(key, grant())
    locks.waiting(key, 2)
    again = locks.lock(key, lease)
    assert (again.key, again.header) == (first.key, header(client.revision()))
    assert not waiting.is_done
    waiting.cancel()
    locks.waiting(key, 1)


def test_a_lease_that_is_not_there_is_refused(locks: Locks, client: Client, key: bytes) -> None:
    start = client.revision()
    with fails(UNKNOWN, LEASE_NOT_FOUND):
        locks.lock(key, 0x1F)
    assert client.revision() == start


def test_a_key_that_is_there_is_the_lock_whosever_lease_it_has(
    locks: Locks, client: Client, key: bytes
) -> None:
    put = client.put(key_for(key, 0x1F), b"by hand").header
    assert locks.lock(key, 0x1F).header == put
    locks.unlock(key_for(key, 0x1F))


def test_a_waiter_has_the_lock_when_all_before_it_are_gone_in_any_order(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leases = [grant() for _ in range(4)]
    calls = []
    for count, lease in enumerate(leases, 1):
        calls.append(locks.begin_lock(key, lease))
        locks.waiting(key, count)
    owner = calls[0].answer()
    locks.unlock(key_for(key, leases[1]))
    assert not calls[2].is_done
    locks.unlock(owner.key)
    answer = calls[2].answer()
    assert answer.key == key_for(key, leases[2])
    assert answer.header == header(client.revision())
    client.revoke(leases[2])
    assert calls[3].answer().key == key_for(key, leases[3])
    assert code_of(calls[1]) == (UNKNOWN, EXPIRED)


def test_any_key_under_the_name_stands_in_line(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    client.put(key + b"/sub/lock/by hand")
    waiting = locks.begin_lock(key, grant())
    locks.waiting(key, 2)
    client.put(key + b"/sub/lock/by hand", b"changed")
    assert not waiting.is_done
    client.delete(key + b"/sub/lock/by hand")
    waiting.answer()


def test_a_key_that_is_deleted_and_put_again_is_behind_the_others(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    client.put(key + b"/a")
    waiting = locks.begin_lock(key, grant())
    locks.waiting(key, 2)
    client.delete(key + b"/a")
    client.put(key + b"/a")
    waiting.answer()


def test_keys_beside_the_name_do_not_count(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    client.put(key)
    client.put(key + b"0")
    client.put(key + b".")
    locks.lock(key, grant())


def test_keys_that_were_made_together_have_the_lock_together(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    leases = sorted([grant(), grant()])
    client.txn(success=[put_op(key_for(key, lease)) for lease in leases])
    for lease in leases:
        locks.lock(key, lease)


def test_a_waiter_that_gives_up_takes_its_key_along(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    owner = locks.lock(key, grant())
    second = locks.begin_lock(key, grant())
    locks.waiting(key, 2)
    third = locks.begin_lock(key, grant())
    locks.waiting(key, 3)
    second.cancel()
    assert locks.waiting(key, 2)[0].key == owner.key
    assert not third.is_done
    locks.unlock(owner.key)
    third.answer()


def test_a_waiter_whose_time_is_over_takes_its_key_along(
    locks: Locks, grant: Granter, key: bytes, request: pytest.FixtureRequest
) -> None:
    locks.lock(key, grant())
    timeout_s = 1.0
    while not locks.is_waiting(late := locks.begin_lock(key, grant(), timeout_s), key, 2):
        locks.waiting(key, 1)  # it was over before a slow machine has seen the key
        timeout_s *= 2
        assert timeout_s < CALL_S, "it never stands in line"
    ends = {grpc.StatusCode.DEADLINE_EXCEEDED}
    if "[real" in request.node.name:
        ends.add(grpc.StatusCode.UNKNOWN)  # etcd ends the call too, and its status may come first
    assert code_of(late)[0] in ends
    locks.waiting(key, 1)


def test_a_waiter_whose_connection_is_gone_takes_its_key_along(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    locks.lock(key, grant())
    other = Client(client.endpoint, OWN_CONNECTION)
    waiting = Locks(other).begin_lock(key, grant())
    locks.waiting(key, 2)
    other.close()
    locks.waiting(key, 1)
    until(lambda: waiting.is_done, "end of the call")


def test_a_waiter_without_a_lease_that_gives_up_leaves_no_key(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    locks.lock(key, grant())
    second = locks.begin_lock(key)
    pair = locks.waiting(key, 2)[1]
    assert client.time_to_live(pair.lease).grantedTTL == SESSION_S
    second.cancel()
    locks.waiting(key, 1)


def test_a_waiter_whose_lease_has_ended_is_told_so_in_its_turn_at_the_latest(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    owner = locks.lock(key, grant())
    lease = grant()
    waiting = locks.begin_lock(key, lease)
    locks.waiting(key, 2)
    client.revoke(lease)
    locks.unlock(owner.key)
    assert code_of(waiting) == (UNKNOWN, EXPIRED)


def test_two_calls_for_the_same_key_have_the_lock_together(
    locks: Locks, grant: Granter, key: bytes
) -> None:
    owner, lease = locks.lock(key, grant()), grant()
    calls = [locks.begin_lock(key, lease) for _ in range(2)]
    locks.waiting(key, 2)
    locks.unlock(owner.key)
    assert calls[0].answer().key == calls[1].answer().key


def test_unlock_deletes_the_key_and_has_its_revision(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    answer = locks.lock(key, grant())
    start = client.revision()
    assert locks.unlock(answer.key).header == header(start + 1)
    assert client.range(answer.key).count == 0


def test_unlock_of_a_missing_key_is_no_error(locks: Locks, client: Client, key: bytes) -> None:
    assert locks.unlock(key).header == header(client.revision())


def test_unlock_without_a_key_is_refused(locks: Locks) -> None:
    with fails(UNKNOWN, "etcdserver: key is not provided"):
        locks.unlock(b"")


def test_a_lock_does_not_renew_the_lease(
    locks: Locks, client: Client, grant: Granter, key: bytes
) -> None:
    lease = grant(ttl_s=30)
    until(lambda: client.time_to_live(lease).TTL < 29, "second gone by")
    locks.lock(key, lease)
    assert client.time_to_live(lease).TTL < 29


def test_what_is_no_message_is_refused(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as error:
        client.raw("/v3lockpb.Lock/Lock", b"\xff")
    assert error.value.code() == grpc.StatusCode.INTERNAL
    assert str(error.value.details()).startswith("grpc: error unmarshalling request:")


def test_a_name_that_is_too_long_is_refused(locks: Locks, grant: Granter) -> None:
    with fails(UNKNOWN, "etcdserver: request is too large"):
        locks.lock(bytes(1_600_000), grant())
