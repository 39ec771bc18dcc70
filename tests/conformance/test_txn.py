"""Txn: conditions, branches, answers within answers, revisions; what is refused, in which order."""

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest
from grpc import StatusCode

from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import (
    Compare,
    DeleteRangeResponse,
    PutResponse,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    ResponseOp,
    TxnResponse,
)
from tests.conformance.client import (
    LEASE_NOT_FOUND,
    OPERATIONS_MAX,
    Client,
    Granter,
    delete_op,
    fails,
    header,
    if_version,
    prefix_end,
    put_op,
    range_op,
    txn_op,
)

EQUAL, GREATER, LESS, NOT_EQUAL = Compare.EQUAL, Compare.GREATER, Compare.LESS, Compare.NOT_EQUAL
VERSION, CREATE, MOD = Compare.VERSION, Compare.CREATE, Compare.MOD
VALUE, LEASE = Compare.VALUE, Compare.LEASE
KEY_MISSING: Final = "etcdserver: key is not provided"
KEY_NOT_FOUND: Final = "etcdserver: key not found"
VALUE_GIVEN: Final = "etcdserver: value is provided"
LEASE_GIVEN: Final = "etcdserver: lease is provided"
DUPLICATE: Final = "etcdserver: duplicate key given in txn request"
TOO_MANY: Final = "etcdserver: too many operations in txn request"
TOO_LARGE: Final = "etcdserver: request is too large"
FUTURE: Final = "etcdserver: mvcc: required revision is a future revision"
COMPACTED: Final = "etcdserver: mvcc: required revision has been compacted"
UNKNOWN_LEASE: Final = 404_404
REQUEST_MAX: Final = 3 << 19
FROM_KEY: Final = b"\x00"
_last_keys: Final = itertools.count()


@pytest.fixture
def last_key(client: Client) -> bytes:
    """A key behind all others, so that all from it on may be deleted."""
    key = b"\xff\xff\xff\xff%06d/" % next(_last_keys)
    client.delete(key, FROM_KEY)  # other tests have left keys there
    return key


# What is answered.


def put_answer(revision: int, prev_kv: KeyValue | None = None) -> ResponseOp:
    return ResponseOp(response_put=PutResponse(header=header(revision), prev_kv=prev_kv))


def delete_answer(revision: int, *prev_kvs: KeyValue, deleted: int | None = None) -> ResponseOp:
    count = len(prev_kvs) if deleted is None else deleted
    answer = DeleteRangeResponse(header=header(revision), deleted=count, prev_kvs=prev_kvs)
    return ResponseOp(response_delete_range=answer)


def range_answer(revision: int, *kvs: KeyValue) -> ResponseOp:
    answer = RangeResponse(header=header(revision), kvs=kvs, count=len(kvs))
    return ResponseOp(response_range=answer)


def txn_answer(*responses: ResponseOp, succeeded: bool = True) -> ResponseOp:
    """Give the answer to a transaction within another one, whose header is there and empty."""
    answer = TxnResponse(header=ResponseHeader(), succeeded=succeeded, responses=responses)
    return ResponseOp(response_txn=answer)


def pair(key: bytes, value: bytes, created: int, modified: int, version: int) -> KeyValue:
    return KeyValue(
        key=key,
        value=value,
        create_revision=created,
        mod_revision=modified,
        version=version,
    )


def test_an_empty_transaction_succeeds_and_changes_nothing(client: Client) -> None:
    expected = TxnResponse(header=header(client.revision()), succeeded=True)
    assert client.txn() == expected


def test_a_transaction_that_reads_only_is_no_revision(client: Client, key: bytes) -> None:
    start = client.put(key, b"v").header.revision
    kv = pair(key, b"v", start, start, 1)
    answer = client.txn(success=[range_op(key), range_op(key + b"none")])
    responses = [range_answer(start, kv), range_answer(start)]
    assert answer == TxnResponse(header=header(start), succeeded=True, responses=responses)


def test_a_nested_transaction_that_reads_only_is_no_revision(client: Client, key: bytes) -> None:
    start = client.put(key, b"v").header.revision
    kv = pair(key, b"v", start, start, 1)
    answer = client.txn(success=[txn_op(success=[range_op(key)]), txn_op()])
    responses = [txn_answer(range_answer(start, kv)), txn_answer()]
    assert answer == TxnResponse(header=header(start), succeeded=True, responses=responses)


def test_deleting_nothing_is_no_revision(client: Client, key: bytes) -> None:
    start = client.revision()
    steps = [delete_op(key), range_op(key), delete_op(key, prefix_end(key), prev_kv=True)]
    responses = [delete_answer(start), range_answer(start), delete_answer(start)]
    expected = TxnResponse(header=header(start), succeeded=True, responses=responses)
    assert client.txn(success=steps) == expected


def test_all_writes_have_one_revision_and_reads_see_them(client: Client, key: bytes) -> None:
    a, b, c = (key + name for name in (b"a", b"b", b"c"))
    client.put(a, b"1")
    start = client.put(b, b"1").header.revision
    old_a, old_b = pair(a, b"1", start - 1, start - 1, 1), pair(b, b"1", start, start, 1)
    new_a = pair(a, b"2", start - 1, start + 1, 2)
    new_c = pair(c, b"1", start + 1, start + 1, 1)
    answer = client.txn(
        success=[
            put_op(a, b"2", prev_kv=True),
            range_op(a),
            delete_op(c + b"none"),
            delete_op(b, prev_kv=True),
            range_op(key, prefix_end(key)),
            txn_op([if_version(a, 1), if_version(b, 1)], [put_op(c, b"1"), range_op(c)]),
            range_op(key, prefix_end(key)),
        ]
    )
    now = start + 1
    responses = [
        put_answer(now, old_a),
        range_answer(now, new_a),
        delete_answer(now),
        delete_answer(now, old_b),
        range_answer(now, new_a),
        txn_answer(put_answer(now), range_answer(now, new_c)),
        range_answer(now, new_a, new_c),
    ]
    assert answer == TxnResponse(header=header(now), succeeded=True, responses=responses)


def test_reads_and_empty_deletes_before_the_first_write_have_the_revision_before(
    client: Client, key: bytes
) -> None:
    start = client.revision()
    steps = [
        range_op(key),
        delete_op(key + b"x"),
        put_op(key),
        range_op(key),
        delete_op(key + b"x"),
    ]
    answer = client.txn(success=steps)
    kv = pair(key, b"", start + 1, start + 1, 1)
    responses = [
        range_answer(start),
        delete_answer(start),
        put_answer(start + 1),
        range_answer(start + 1, kv),
        delete_answer(start + 1),
    ]
    expected = TxnResponse(header=header(start + 1), succeeded=True, responses=responses)
    assert answer == expected


def test_the_other_branch_is_taken_if_a_condition_fails(client: Client, key: bytes) -> None:
    start = client.revision()
    answer = client.txn(
        [if_version(key, 0), if_version(key, 1)], [put_op(key, b"then")], [put_op(key, b"else")]
    )
    assert answer == TxnResponse(header=header(start + 1), responses=[put_answer(start + 1)])
    assert client.range(key).kvs[0].value == b"else"


def test_conditions_of_nested_transactions_see_nothing_of_what_was_done(
    client: Client, key: bytes
) -> None:
    """All conditions are decided before the first step."""
    start = client.put(key, b"1").header.revision
    was, is_now = txn_op([if_version(key, 1)]), txn_op([if_version(key, 2)])
    deeper = txn_op(success=[was, is_now])
    answer = client.txn(success=[put_op(key, b"2"), was, is_now, deeper])
    held, failed = txn_answer(), txn_answer(succeeded=False)
    responses = [put_answer(start + 1), held, failed, txn_answer(held, failed)]
    assert answer == TxnResponse(header=header(start + 1), succeeded=True, responses=responses)


def test_branches_of_nested_transactions_are_told_apart(client: Client, key: bytes) -> None:
    names = [key + b"%d" % number for number in range(6)]
    no = [if_version(key, 7)]
    client.txn(
        success=[
            txn_op(no, [put_op(names[0])], [put_op(names[1]), txn_op(no, [put_op(names[2])])]),
            txn_op([], [put_op(names[3]), txn_op(no, [], [put_op(names[4])])], [put_op(names[5])]),
        ]
    )
    assert [each.key for each in client.range(key, prefix_end(key)).kvs] == [
        names[1],
        names[3],
        names[4],
    ]


def test_keys_move_between_leases_within_a_transaction(
    client: Client, key: bytes, grant: Granter
) -> None:
    first, second = grant(), grant()
    client.put(key + b"a", lease=first)
    client.put(key + b"b", lease=first)
    client.txn(success=[put_op(key + b"a", lease=second), delete_op(key + b"b"), put_op(key)])
    assert client.time_to_live(first, keys=True).keys == []
    assert client.time_to_live(second, keys=True).keys == [key + b"a"]


def test_ignore_value_and_ignore_lease_within_a_transaction(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key + b"a", b"kept", lease=lease)
    client.put(key + b"b", b"old", lease=lease)
    client.txn(
        success=[
            put_op(key + b"a", ignore_value=True, prev_kv=True),
            put_op(key + b"b", b"new", ignore_lease=True),
        ]
    )
    found = client.range(key, prefix_end(key)).kvs
    assert [(each.value, each.lease, each.version) for each in found] == [
        (b"kept", 0, 2),
        (b"new", lease, 2),
    ]


# Conditions.


def holds(client: Client, *compares: Compare) -> bool:
    return client.txn(compares).succeeded


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (EQUAL, (False, True, False)),
        (GREATER, (True, False, False)),
        (LESS, (False, False, True)),
        (NOT_EQUAL, (True, False, True)),
    ],
)
def test_each_field_of_a_key_may_be_compared(
    client: Client,
    key: bytes,
    grant: Granter,
    result: Compare.CompareResult,
    expected: tuple[bool, ...],
) -> None:
    lease = grant()
    for _ in range(3):
        client.put(key, b"v5", lease=lease)
    found = client.range(key).kvs[0]
    numbers = {
        (VERSION, "version"): found.version,
        (CREATE, "create_revision"): found.create_revision,
        (MOD, "mod_revision"): found.mod_revision,
        (LEASE, "lease"): found.lease,
    }
    for (target, operand), number in numbers.items():
        compares = [
            Compare(key=key, target=target, result=result, **{operand: number + more})  # type: ignore[arg-type]
            for more in (-1, 0, 1)
        ]
        assert tuple(holds(client, compare) for compare in compares) == expected, operand
    compares = [
        Compare(key=key, target=VALUE, result=result, value=value) for value in (b"v", b"v5", b"v6")
    ]
    assert tuple(holds(client, compare) for compare in compares) == expected


NUMBERS: Final = (VERSION, CREATE, MOD, LEASE)
ABOUT_NOTHING: Final = {EQUAL: True, GREATER: False, LESS: False, NOT_EQUAL: False}
ALL_RESULTS: Final = (EQUAL, GREATER, LESS, NOT_EQUAL)


def test_of_a_missing_key_all_numbers_are_zero(client: Client, key: bytes) -> None:
    """A range that has no key compares as such a key, too; also one that ends before it begins."""
    for end in (b"", prefix_end(key), key, key[:-1]):
        for target, result in itertools.product(NUMBERS, ALL_RESULTS):
            compare = Compare(key=key, range_end=end, target=target, result=result)
            assert holds(client, compare) == ABOUT_NOTHING[result]


@pytest.mark.parametrize("result", ALL_RESULTS)
def test_the_value_of_a_missing_key_compares_with_nothing(
    client: Client, key: bytes, result: Compare.CompareResult
) -> None:
    for value, end in itertools.product((b"", b"v"), (b"", prefix_end(key), key)):
        compare = Compare(key=key, range_end=end, target=VALUE, result=result, value=value)
        assert not holds(client, compare)


def test_an_operand_that_is_not_given_is_zero_or_empty(client: Client, key: bytes) -> None:
    client.put(key)
    for target in (VERSION, CREATE, MOD):
        assert holds(client, Compare(key=key, target=target, result=GREATER))
    assert holds(client, Compare(key=key, target=LEASE))
    assert holds(client, Compare(key=key, target=VALUE))


def test_an_operand_of_another_field_is_not_looked_at(client: Client, key: bytes) -> None:
    client.put(key)
    assert holds(client, Compare(key=key, target=VALUE, version=1))
    assert not holds(client, Compare(key=key, target=VERSION, create_revision=1))
    assert holds(client, Compare(key=key, target=LEASE, value=b"x"))


def test_a_condition_on_a_range_is_one_on_each_key(client: Client, key: bytes) -> None:
    for name, value in ((b"a", b"3"), (b"b", b"5"), (b"c", b"5")):
        client.put(key + name, value)
    client.put(key + b"c", b"5")

    def all_hold(first: bytes, end: bytes, **more: Any) -> bool:
        return holds(client, Compare(key=key + first, range_end=end, **more))

    end = prefix_end(key)
    assert all_hold(b"", end, target=VALUE, result=GREATER, value=b"2")
    assert not all_hold(b"", end, target=VALUE, result=GREATER, value=b"3")
    assert all_hold(b"b", end, target=VALUE, value=b"5")
    assert all_hold(b"a", key + b"c", target=VERSION, version=1)
    assert not all_hold(b"a", end, target=VERSION, version=1)
    assert all_hold(b"a", key + b"a", target=VERSION, version=0)  # nothing is in it
    assert all_hold(b"", FROM_KEY, target=VERSION, result=GREATER, version=0)
    assert not all_hold(b"", FROM_KEY, target=CREATE, result=LESS, create_revision=2)


@pytest.mark.parametrize("count", [1000, 1001])
def test_a_condition_on_very_many_keys(client: Client, key: bytes, count: int) -> None:
    names = [key + b"%06d" % number for number in range(count)]
    client.put_all(names, b"v")
    end = prefix_end(key)
    same = Compare(key=key, range_end=end, target=VALUE, value=b"v")
    assert holds(client, same)
    client.put(names[-1], b"w")
    assert not holds(client, same)


@pytest.mark.parametrize("target", [5, -1, 77])
def test_an_unknown_target_is_always_equal(client: Client, key: bytes, target: Any) -> None:
    client.put(key)
    for name, (result, expected) in itertools.product((b"", b"none"), ABOUT_NOTHING.items()):
        compare = Compare(key=key + name, target=target, result=result, version=9)
        assert holds(client, compare) == expected


@pytest.mark.parametrize("result", [4, -1])
def test_an_unknown_relation_always_holds(client: Client, key: bytes, result: Any) -> None:
    client.put(key, b"v")
    for name, target in itertools.product((b"", b"none"), (*NUMBERS, VALUE)):
        compare = Compare(key=key + name, target=target, result=result)
        assert holds(client, compare) == (target != VALUE or not name)


def test_an_unknown_relation_of_an_unknown_target_holds(client: Client, key: bytes) -> None:
    client.put(key)
    unknown: Any = 9
    for name in (b"", b"none"):
        assert holds(client, Compare(key=key + name, target=unknown, result=unknown))


# What is refused, whatever is stored.

Steps = Callable[[bytes], list[RequestOp]]
WRONG: Final[dict[str, tuple[RequestOp, str]]] = {
    "nothing": (RequestOp(), KEY_NOT_FOUND),
    "range": (range_op(b""), KEY_MISSING),
    "delete": (delete_op(b""), KEY_MISSING),
    "put": (put_op(b""), KEY_MISSING),
    "put with value": (put_op(b"k", b"v", ignore_value=True), VALUE_GIVEN),
    "put with lease": (put_op(b"k", lease=1, ignore_lease=True), LEASE_GIVEN),
    "compare": (txn_op([Compare()]), KEY_MISSING),
    "many": (txn_op(success=[range_op(b"k")] * OPERATIONS_MAX), TOO_MANY),
}


def refused(client: Client, text: str, *arguments: Any) -> None:
    start = client.revision()
    with fails(StatusCode.INVALID_ARGUMENT, text):
        client.txn(*arguments)
    assert client.revision() == start


@pytest.mark.parametrize("what", WRONG)
def test_a_step_that_is_wrong_is_refused_in_any_branch(
    client: Client, key: bytes, what: str
) -> None:
    wrong, text = WRONG[what]
    good = put_op(key)
    refused(client, text, [], [good, wrong])
    refused(client, text, [], [], [good, wrong])
    refused(client, text, [], [txn_op([], [], [good, wrong])])


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(WRONG, 2)))
def test_the_first_wrong_step_is_told(client: Client, first: str, second: str) -> None:
    (step, text), (other, _) = WRONG[first], WRONG[second]
    refused(client, text, [], [step, other])
    refused(client, text, [], [step], [other])
    refused(client, text, [], [txn_op([], [], [step]), other])


def test_a_put_within_a_transaction_is_checked_in_order(client: Client, key: bytes) -> None:
    faults: dict[str, Any] = {"lease": 1, "ignore_value": True, "ignore_lease": True}
    refused(client, KEY_MISSING, [], [put_op(b"", b"v", **faults)])
    refused(client, VALUE_GIVEN, [], [put_op(key, b"v", **faults)])
    refused(client, LEASE_GIVEN, [], [put_op(key, **faults)])


@pytest.mark.parametrize("what", WRONG)
def test_the_number_is_checked_first_and_then_the_conditions(client: Client, what: str) -> None:
    wrong, _ = WRONG[what]
    refused(client, TOO_MANY, [], [wrong] * (OPERATIONS_MAX + 1))
    refused(client, TOO_MANY, [Compare()] * (OPERATIONS_MAX + 1), [wrong])
    refused(client, TOO_MANY, [Compare()], [wrong], [range_op(b"k")] * (OPERATIONS_MAX + 1))
    refused(client, KEY_MISSING, [if_version(b"k", 0), Compare()], [wrong])
    wrong_compare: Any = 9
    refused(client, KEY_MISSING, [Compare(key=b"k", target=wrong_compare), Compare()], [wrong])


def test_128_operations_are_taken_and_no_more(client: Client, key: bytes) -> None:
    steps = [put_op(key + b"%d" % number) for number in range(OPERATIONS_MAX + 1)]
    compares = [if_version(key, 0)] * (OPERATIONS_MAX + 1)
    answer = client.txn(compares[1:], steps[1:], steps[1:])
    assert len(answer.responses) == OPERATIONS_MAX
    refused(client, TOO_MANY, compares)
    refused(client, TOO_MANY, [], steps)
    refused(client, TOO_MANY, [], [], steps)


@pytest.mark.parametrize("outer", [1, 64, 127, 128])
def test_a_nested_transaction_has_what_the_outer_leaves(
    client: Client, key: bytes, outer: int
) -> None:
    one = range_op(key, count_only=True)
    left = OPERATIONS_MAX - outer
    within, over = txn_op([], [one] * left), txn_op([], [], [one] * (left + 1))
    yes = if_version(key, 0)
    filled = [one] * (outer - 1)
    assert client.txn([], [*filled, within]).succeeded
    assert client.txn([yes] * outer, [within, within][:outer]).responses
    refused(client, TOO_MANY, [], [*filled, over])
    refused(client, TOO_MANY, [yes] * outer, [over])
    refused(client, TOO_MANY, [], [within][:outer], [one] * outer + [over])
    refused(client, TOO_MANY, [], [txn_op([yes] * (left + 1))], [one] * outer)


def test_each_level_takes_from_what_is_left(client: Client) -> None:
    one = range_op(b"k", count_only=True)
    assert client.txn([], [txn_op([], [txn_op([], [one] * (OPERATIONS_MAX - 2))])]).succeeded
    refused(client, TOO_MANY, [], [txn_op([], [txn_op([], [one] * (OPERATIONS_MAX - 1))])])


def _touching_twice() -> dict[str, Steps]:
    def put(key: bytes) -> RequestOp:
        return put_op(key + b"m")

    def delete(key: bytes) -> RequestOp:
        return delete_op(key + b"m")

    def around(key: bytes) -> RequestOp:
        return delete_op(key, prefix_end(key))

    def then(*steps: RequestOp) -> RequestOp:
        return txn_op([], steps)

    def otherwise(*steps: RequestOp) -> RequestOp:
        return txn_op([], [], steps)

    return {
        "put, put": lambda key: [put(key), put(key)],
        "put, delete": lambda key: [put(key), delete(key)],
        "delete, put": lambda key: [delete(key), put(key)],
        "put, delete range": lambda key: [put(key), around(key)],
        "delete range, put": lambda key: [around(key), put(key)],
        "delete range from it": lambda key: [put(key), delete_op(key + b"m", key + b"n")],
        "put, then put": lambda key: [put(key), then(put(key))],
        "then put, put": lambda key: [then(put(key)), put(key)],
        "else put, put": lambda key: [otherwise(put(key)), put(key)],
        "both put, put": lambda key: [txn_op([], [put(key)], [put(key)]), put(key)],
        "then put, then put": lambda key: [then(put(key)), then(put(key))],
        "then put, else put": lambda key: [then(put(key)), otherwise(put(key))],
        "put, then delete": lambda key: [put(key), then(delete(key))],
        "delete, then put": lambda key: [delete(key), then(put(key))],
        "delete, else put": lambda key: [delete(key), otherwise(put(key))],
        "then delete, put": lambda key: [then(delete(key)), put(key)],
        "else delete range, put": lambda key: [otherwise(around(key)), put(key)],
        "then delete, then put": lambda key: [then(delete(key)), then(put(key))],
        "within": lambda key: [then(put(key), delete(key))],
        "deep": lambda key: [then(then(put(key))), then(otherwise(put(key)))],
        "deep delete": lambda key: [then(otherwise(around(key))), put(key)],
    }


TOUCHING_TWICE: Final = _touching_twice()


@pytest.mark.parametrize("what", TOUCHING_TWICE)
def test_a_key_may_not_be_put_twice_nor_put_and_deleted(
    client: Client, key: bytes, what: str
) -> None:
    steps = TOUCHING_TWICE[what](key)
    refused(client, DUPLICATE, [], steps)
    refused(client, DUPLICATE, [], [], steps)
    refused(client, DUPLICATE, [if_version(key, 7)], steps, [put_op(key)])


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_step_is_told_before_a_key_that_is_touched_twice(
    client: Client, key: bytes, what: str
) -> None:
    wrong, text = WRONG[what]
    refused(client, text, [], [put_op(key), put_op(key)], [wrong])


def test_keys_may_be_touched_in_branches_that_exclude_each_other(
    client: Client, key: bytes
) -> None:
    put, delete = put_op(key), delete_op(key)
    assert client.txn([], [put], [put]).succeeded
    assert client.txn([], [put], [delete]).succeeded
    assert client.txn([], [txn_op([], [put], [put])]).succeeded
    assert client.txn([], [txn_op([], [put], [delete])]).succeeded
    assert client.txn([], [txn_op([], [delete], [put])]).succeeded


def test_a_key_may_be_deleted_twice_and_next_to_a_put(client: Client, key: bytes) -> None:
    client.put(key + b"a")
    client.put(key + b"b")
    start = client.revision()
    answer = client.txn(
        [],
        [
            delete_op(key + b"a"),
            delete_op(key + b"a"),
            delete_op(key + b"a", key + b"c"),
            put_op(key + b"c"),
            delete_op(key + b"c\x00"),
            delete_op(key + b"d", key + b"a"),  # a range of nothing
            txn_op([], [delete_op(key + b"b")]),
        ],
    )
    now = start + 1
    assert answer.responses == [
        delete_answer(now, deleted=1),
        delete_answer(now),
        delete_answer(now, deleted=1),
        put_answer(now),
        delete_answer(now),
        delete_answer(now),
        txn_answer(delete_answer(now)),
    ]


def test_a_put_in_one_and_a_delete_in_a_later_nested_transaction_are_both_done(
    client: Client, key: bytes
) -> None:
    """The other way round they are refused."""
    start = client.put(key, b"old").header.revision
    put = txn_op([], [put_op(key, b"new")])
    delete = txn_op([], [delete_op(key, prev_kv=True), range_op(key)])
    answer = client.txn([], [put, delete])
    now = start + 1
    deleted = delete_answer(now, pair(key, b"new", start, now, 2))
    assert answer == TxnResponse(
        header=header(now),
        succeeded=True,
        responses=[txn_answer(put_answer(now)), txn_answer(deleted, range_answer(now))],
    )
    assert client.range(key) == RangeResponse(header=header(now))
    assert client.range(key, revision=start).kvs == [pair(key, b"old", start, start, 1)]
    assert client.range(key, revision=now).count == 0
    assert client.put(key, b"again").header.revision == now + 1
    assert client.range(key).kvs == [pair(key, b"again", now + 1, now + 1, 1)]


def test_a_delete_from_a_key_on_and_a_put_behind_it_are_both_done(
    client: Client, last_key: bytes
) -> None:
    """For etcd such a delete overlaps with nothing."""
    start = client.put(last_key, b"old").header.revision
    old = pair(last_key, b"old", start, start, 1)
    now = start + 1
    new = pair(last_key, b"new", now, now, 1)
    answer = client.txn(
        [],
        [
            delete_op(last_key, FROM_KEY, prev_kv=True),
            put_op(last_key, b"new", prev_kv=True),
            range_op(last_key),
        ],
    )
    responses = [delete_answer(now, old), put_answer(now), range_answer(now, new)]
    assert answer == TxnResponse(header=header(now), succeeded=True, responses=responses)
    answer = client.txn(
        [],
        [put_op(last_key, b"newer"), txn_op([], [delete_op(last_key, FROM_KEY, prev_kv=True)])],
    )
    newer = pair(last_key, b"newer", now, now + 1, 2)
    responses = [put_answer(now + 1), txn_answer(delete_answer(now + 1, newer))]
    assert answer == TxnResponse(header=header(now + 1), succeeded=True, responses=responses)
    assert client.range(last_key) == RangeResponse(header=header(now + 1))
    assert client.range(last_key, revision=now).kvs == [new]


# What is refused because of what is stored.


def test_an_unknown_lease_fails_the_whole_transaction(client: Client, key: bytes) -> None:
    start = client.revision()
    bad = put_op(key + b"b", lease=UNKNOWN_LEASE)
    for steps in ([put_op(key + b"a"), bad], [txn_op([], [put_op(key + b"a")]), txn_op([], [bad])]):
        with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
            client.txn([], steps)
        with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
            client.txn([if_version(key, 7)], [], steps)
    assert client.range(key, prefix_end(key)) == RangeResponse(header=header(start))


@pytest.mark.parametrize("ignore", [{"ignore_value": True}, {"ignore_lease": True}], ids=str)
def test_a_key_with_nothing_to_keep_fails_the_whole_transaction(
    client: Client, key: bytes, ignore: dict[str, Any]
) -> None:
    start = client.revision()
    with fails(StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND):
        client.txn([], [put_op(key + b"a"), put_op(key + b"b", **ignore)])
    assert client.range(key, prefix_end(key)) == RangeResponse(header=header(start))


@pytest.mark.parametrize("more", [{"lease": UNKNOWN_LEASE}, {"ignore_value": True}], ids=str)
def test_the_branch_that_is_not_taken_is_not_checked(
    client: Client, key: bytes, more: dict[str, Any]
) -> None:
    bad = [put_op(key, **more), range_op(key, revision=client.revision() + 1000)]
    assert client.txn([], [], bad).succeeded
    assert not client.txn([if_version(key, 7)], bad).succeeded
    assert client.txn([], [txn_op([], [], bad)]).succeeded


def test_a_missing_key_is_told_before_an_unknown_lease(client: Client, key: bytes) -> None:
    """A put of its own tells the lease first."""
    with fails(StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND):
        client.txn([], [put_op(key, lease=UNKNOWN_LEASE, ignore_value=True)])
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.put(key, lease=UNKNOWN_LEASE, ignore_value=True)


def test_puts_are_checked_in_order_and_before_ranges(client: Client, key: bytes) -> None:
    future = range_op(key, revision=client.revision() + 1000)
    no_lease = put_op(key + b"a", lease=UNKNOWN_LEASE)
    no_key = put_op(key + b"b", ignore_value=True)
    nested = txn_op([], [no_key])
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.txn([], [future, no_lease, no_key])
    with fails(StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND):
        client.txn([], [future, no_key, no_lease])
    with fails(StatusCode.INVALID_ARGUMENT, KEY_NOT_FOUND):
        client.txn([], [future, nested, no_lease])
    with fails(StatusCode.NOT_FOUND, LEASE_NOT_FOUND):
        client.txn([], [no_lease, future, nested])


def test_duplicates_are_told_before_what_is_stored_is_looked_at(client: Client, key: bytes) -> None:
    refused(client, DUPLICATE, [], [put_op(key, lease=UNKNOWN_LEASE), put_op(key)])
    refused(client, DUPLICATE, [], [range_op(key, revision=1 << 60), put_op(key), put_op(key)])


# Ranges within a transaction.


def test_a_range_within_a_transaction_has_all_options(client: Client, key: bytes) -> None:
    for name, value in ((b"a", b"2"), (b"b", b"3"), (b"c", b"1")):
        client.put(key + name, value)
    start = client.revision()
    a, b, c = client.range(key, prefix_end(key)).kvs
    end = prefix_end(key)
    by_value: dict[str, Any] = {
        "sort_order": RangeRequest.DESCEND,
        "sort_target": RangeRequest.VALUE,
    }
    answers = client.txn(
        [],
        [
            range_op(key, end, limit=1),
            range_op(key, end, limit=2, **by_value),
            range_op(key, end, count_only=True),
            range_op(key + b"a", keys_only=True),
            range_op(key, end, min_mod_revision=b.mod_revision),
            range_op(key, end, limit=-1, revision=start),
            range_op(key, end, revision=a.mod_revision),
            range_op(key, end, revision=a.mod_revision - 1, count_only=True),
        ],
    ).responses
    without_value = pair(a.key, b"", a.create_revision, a.mod_revision, 1)
    now = header(start)
    assert [answer.response_range for answer in answers] == [
        RangeResponse(header=now, kvs=[a], more=True, count=3),
        RangeResponse(header=now, kvs=[b, a], more=True, count=3),
        RangeResponse(header=now, count=3),
        RangeResponse(header=now, kvs=[without_value], count=1),
        RangeResponse(header=now, kvs=[b, c], count=3),
        RangeResponse(header=now, kvs=[a, b, c], count=3),
        RangeResponse(header=now, kvs=[a], count=1),
        RangeResponse(header=now),
    ]


def test_a_range_at_a_past_revision_sees_nothing_of_the_transaction(
    client: Client, key: bytes
) -> None:
    first = client.put(key, b"1").header.revision
    second = client.put(key, b"2").header.revision
    answers = client.txn(
        [],
        [
            put_op(key, b"3"),
            range_op(key, revision=first),
            range_op(key, revision=second),
            range_op(key),
        ],
    ).responses
    now = second + 1
    assert answers[1:] == [
        range_answer(now, pair(key, b"1", first, first, 1)),
        range_answer(now, pair(key, b"2", first, second, 2)),
        range_answer(now, pair(key, b"3", first, now, 3)),
    ]


def test_a_future_revision_fails_the_whole_transaction(client: Client, key: bytes) -> None:
    """The revision that the transaction itself makes is one, too."""
    start = client.revision()
    for steps in (
        [put_op(key), range_op(key, revision=start + 1)],
        [txn_op([], [put_op(key)]), txn_op([], [range_op(key, revision=start + 1)])],
        [range_op(key, revision=start + 1)],
    ):
        with fails(StatusCode.OUT_OF_RANGE, FUTURE):
            client.txn([], steps)
    assert client.range(key) == RangeResponse(header=header(start))


def test_a_compacted_revision_fails_the_whole_transaction(client: Client, key: bytes) -> None:
    """And so does a negative one, which a range of its own takes for now."""
    client.put(key, b"1")
    start = client.put(key, b"2").header.revision
    client.compact(start)
    for revision in (1, start - 1, -1, -(1 << 63)):
        with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
            client.txn([], [put_op(key), range_op(key, revision=revision)])
        with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
            client.txn([], [range_op(key, revision=revision)])
    assert client.range(key).kvs[0].mod_revision == start
    assert client.txn([], [range_op(key, revision=start)]).responses[0].response_range.count == 1


def test_ranges_are_checked_in_order(client: Client, key: bytes) -> None:
    start = client.put(key).header.revision
    client.compact(start)
    future, compacted = range_op(key, revision=start + 1), range_op(key, revision=start - 1)
    with fails(StatusCode.OUT_OF_RANGE, COMPACTED):
        client.txn([], [txn_op([], [compacted]), future])
    with fails(StatusCode.OUT_OF_RANGE, FUTURE):
        client.txn([], [future, txn_op([], [compacted])])


# Sizes.


def test_a_transaction_that_is_too_large_is_refused(client: Client, key: bytes) -> None:
    value = b"v" * REQUEST_MAX
    refused(client, TOO_LARGE, [], [put_op(key, value, lease=UNKNOWN_LEASE)])
    refused(client, TOO_LARGE, [], [], [put_op(key, value)])
    refused(client, TOO_LARGE, [], [txn_op([], [range_op(value)])])
    refused(client, TOO_LARGE, [if_version(value, 0)], [delete_op(key)])


def test_a_transaction_that_is_both_too_large_and_wrong_is_wrong(
    client: Client, key: bytes
) -> None:
    large = put_op(key, b"v" * REQUEST_MAX)
    refused(client, KEY_MISSING, [], [large, put_op(b"")])
    refused(client, DUPLICATE, [], [large, put_op(key)])
    refused(client, TOO_MANY, [], [large, *[range_op(key)] * OPERATIONS_MAX])


def test_a_transaction_that_reads_only_may_be_large(client: Client) -> None:
    name = b"k" * REQUEST_MAX
    assert client.txn([], [range_op(name)]).succeeded
    assert client.txn([if_version(name, 0)]).succeeded


@pytest.mark.parametrize("count", [1001, 2600])
def test_a_transaction_over_very_many_keys_is_one_revision(
    client: Client, key: bytes, count: int
) -> None:
    """Ours does more than a thousand in slices, which nobody may see."""
    names = [key + b"%06d" % number for number in range(count)]
    client.put_all(names)
    start = client.revision()
    last = key + b"~"
    answer = client.txn(
        [if_version(last, 0)],
        [
            range_op(key, last, count_only=True),
            delete_op(key, last, prev_kv=True),
            put_op(last),
            range_op(key, prefix_end(key)),
        ],
    )
    assert answer.header == header(start + 1)
    counted, deleted, _, left = answer.responses
    assert counted.response_range.count == count
    assert [each.key for each in deleted.response_delete_range.prev_kvs] == names
    assert left == range_answer(start + 1, pair(last, b"", start + 1, start + 1, 1))


def _nested(size: int, step: Callable[[int], RequestOp]) -> list[RequestOp]:
    """Make `size` operations, a hundred to a nested transaction."""
    return [
        txn_op(success=[step(number) for number in range(first, first + 100)])
        for first in range(0, size, 100)
    ]


@pytest.mark.parametrize("end", [b"", FROM_KEY], ids=["single keys", "from a key on"])
def test_very_many_deletes_then_puts_are_done(client: Client, last_key: bytes, end: bytes) -> None:
    def step(number: int) -> RequestOp:
        if number < 1000:
            return delete_op(last_key + b"d%04d" % number, end)
        return put_op(last_key + b"p%04d" % number)

    answer = client.txn(success=_nested(2000, step))
    assert answer.succeeded
    assert len(answer.responses) == 20
    found = client.range(last_key, prefix_end(last_key), count_only=True)
    assert found.count == 1000
    client.delete(last_key, prefix_end(last_key))


def test_very_many_puts_then_one_delete_of_everything_leave_nothing(
    client: Client, key: bytes
) -> None:
    puts = _nested(2000, lambda number: put_op(key + b"/%04d" % number))
    after = txn_op(success=[delete_op(key, prefix_end(key))])
    answer = client.txn(success=[*puts, after])
    deleted = answer.responses[-1].response_txn.responses[0].response_delete_range
    assert deleted.deleted == 2000
    assert client.range(key, prefix_end(key)).count == 0


def test_very_many_puts_in_both_branches_are_done_once(client: Client, key: bytes) -> None:
    def both(first: int) -> RequestOp:
        puts = [put_op(key + b"/%04d" % number) for number in range(first, first + 100)]
        return txn_op([if_version(key, 0)], success=puts, failure=puts)

    client.txn(success=[both(first) for first in range(0, 2000, 100)])
    found = client.range(key, prefix_end(key), limit=1)
    assert (found.count, found.kvs[0].version) == (2000, 1)


def test_one_conflict_among_very_many_operations_is_refused(client: Client, key: bytes) -> None:
    deletes = _nested(1000, lambda number: delete_op(key + b"/%04d" % number))
    puts = _nested(1000, lambda number: put_op(key + b"/p%04d" % number))
    put = txn_op(success=[put_op(key + b"/0500")])
    with fails(StatusCode.INVALID_ARGUMENT, DUPLICATE):
        client.txn(success=[*deletes, *puts, put])
    client.txn(success=[put, *deletes, *puts])
