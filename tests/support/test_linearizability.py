"""The checker of histories finds what is wrong, and only that.

Times are written out: operations are concurrent if their times overlap.
"""

import itertools
import random
import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.support.linearizability import (
    Action,
    Ask,
    Cas,
    Compare,
    Delete,
    Deleted,
    Get,
    Header,
    History,
    KeyState,
    KeyViolation,
    ModIs,
    Operation,
    Put,
    Read,
    RevisionViolation,
    SearchTooLong,
    Span,
    ValueIs,
    VersionIs,
    Written,
    check,
    check_revisions,
)
from tests.support.linearizability.simulated import Setting, Simulation

KEY = b"key"
OTHER = b"other"
A, B, C = b"a", b"b", b"c"


def op(
    action: Action[Any],
    invoked: float,
    returned: float,
    result: Any,
    *,
    key: bytes | None = KEY,
    transaction: Hashable | None = None,
) -> Operation:
    return Operation("client", key, action, invoked, returned, result, transaction)


def put(value: bytes, invoked: float, returned: float, at: int | None = None) -> Operation:
    return op(Put(value), invoked, returned, Written(at))


def get(
    value: bytes | None,
    invoked: float,
    returned: float,
    *,
    mod: int | None = None,
    version: int | None = None,
    create: int | None = None,
    at: int | None = None,
) -> Operation:
    return op(Get(), invoked, returned, Read(value, mod, version, create, at))


def delete(count: int, invoked: float, returned: float, at: int | None = None) -> Operation:
    return op(Delete(), invoked, returned, Deleted(count, at))


def cas(compare: Compare, value: bytes, invoked: float, returned: float, result: Any) -> Operation:
    return op(Cas(compare, value), invoked, returned, result)


def lost(action: Action[Any], invoked: float) -> Operation:
    return Operation("lost", KEY, action, invoked)


GOOD = {
    "nothing happened": [],
    "one after the other": [
        get(None, 0, 1, at=1),
        put(A, 2, 3, at=2),
        get(A, 4, 5, mod=2, version=1, create=2, at=2),
        put(B, 6, 7, at=5),
        get(B, 8, 9, mod=5, version=2, create=2, at=7),
        delete(1, 10, 11, at=8),
        delete(0, 12, 13, at=8),
        get(None, 14, 15, mod=0, version=0, create=0, at=8),
        put(A, 16, 17, at=9),
        get(A, 18, 19, mod=9, version=1, create=9, at=9),
    ],
    "reads during a write see the old and the new value": [
        put(A, 0, 1),
        put(B, 2, 9),
        get(A, 3, 4),
        get(B, 5, 6),
        get(B, 7, 8),
    ],
    "concurrent writes in the order of their revisions": [
        put(A, 0, 9, at=4),
        put(B, 0, 9, at=3),
        put(C, 0, 9, at=2),
        get(A, 10, 11, mod=4, version=3, create=2),
    ],
    "operations that touch in time are concurrent": [put(A, 0, 1), put(B, 1, 2), get(A, 2, 3)],
    "an open write takes effect late": [
        put(A, 0, 1, at=2),
        lost(Put(B), 2),
        get(A, 4, 5, at=2),
        put(C, 6, 7, at=3),
        get(C, 8, 9, at=3),
        get(B, 100, 101, mod=4, version=3, create=2, at=4),
    ],
    "an open write never takes effect": [put(A, 0, 1), lost(Put(B), 2), get(A, 100, 101)],
    "an open write is overwritten unseen": [
        put(A, 0, 1, at=2),
        lost(Put(B), 2),
        put(C, 4, 5, at=4),
        get(C, 6, 7, mod=4, version=3, create=2, at=4),
    ],
    "an open delete takes effect": [put(A, 0, 1), lost(Delete(), 2), get(A, 3, 4), get(None, 5, 6)],
    "an open transaction takes effect": [
        put(A, 0, 1, at=2),
        lost(Cas(ModIs(2), B), 2),
        get(B, 3, 4, mod=3, version=2, create=2),
    ],
    "an open get": [put(A, 0, 1), lost(Get(), 2), get(A, 3, 4)],
    "two open writes of the same value, each seen": [
        lost(Put(A), 0),
        lost(Put(A), 1),
        get(A, 2, 3, version=1),
        put(B, 4, 5),
        get(A, 6, 7, version=3),
    ],
    "the revision of an open write is told by a read": [
        lost(Put(A), 0),
        get(A, 1, 2, mod=7),
        get(A, 3, 4, mod=7, create=7),
        put(B, 5, 6, at=8),
        get(B, 7, 8, mod=8, version=2, create=7, at=8),
    ],
    "one of two transactions succeeds": [
        put(A, 0, 1, at=2),
        cas(ModIs(2), B, 2, 9, Written(3)),
        cas(ModIs(2), C, 2, 9, Read(B, 3, 2, 2, 3)),
    ],
    "a transaction on an absent key": [
        cas(ValueIs(A), B, 0, 1, Read(None, revision=1)),
        cas(ModIs(5), B, 2, 3, Read(None, revision=1)),
        cas(VersionIs(0), A, 4, 5, Written(2)),
        cas(ModIs(0), B, 6, 7, Read(A, 2, 1, 2, 2)),
        cas(ValueIs(A), B, 8, 9, Written(3)),
        cas(VersionIs(2), C, 10, 11, Written(4)),
    ],
    "a transaction tells the revision that it compared": [
        lost(Put(A), 0),
        get(A, 1, 2),
        cas(ModIs(6), B, 3, 4, Written(9)),
        get(B, 5, 6, create=6),
    ],
}

BAD = {
    "a stale read": [put(A, 0, 1), put(B, 2, 3), get(A, 4, 5)],
    "a stale read of the same value": [put(A, 0, 1, at=2), put(A, 2, 3, at=3), get(A, 4, 5, mod=2)],
    "a read goes back during a write": [put(A, 0, 1), put(B, 2, 9), get(B, 3, 4), get(A, 5, 6)],
    "a value that looks like the unseen mark": [put(A, 0, 1), get(b"(nobody saw)", 2, 3)],
    "a value that was never written": [put(A, 0, 1), get(C, 2, 3)],
    "a value from before it was written": [put(A, 2, 3), get(A, 0, 1)],
    "a value from before an open write": [lost(Put(A), 2), get(A, 0, 1)],
    "an acknowledged write is gone": [put(A, 0, 1, at=2), get(None, 50, 51)],
    "an acknowledged write is undone": [
        put(A, 0, 1, at=2),
        put(B, 2, 3, at=3),
        get(A, 50, 51, mod=2, version=1, create=2, at=3),
    ],
    "an acknowledged delete is undone": [put(A, 0, 1), delete(1, 2, 3), get(A, 50, 51)],
    "an unacknowledged write is seen and vanishes": [
        put(A, 0, 1),
        lost(Put(B), 2),
        get(B, 3, 4),
        get(A, 50, 51),
    ],
    "an unacknowledged first write is seen and vanishes": [
        lost(Put(A), 0),
        get(A, 1, 2),
        get(None, 50, 51),
    ],
    "an open write takes effect twice": [
        lost(Put(A), 0),
        get(A, 1, 2),
        put(B, 3, 4),
        get(B, 5, 6),
        get(A, 7, 8),
    ],
    "an open transaction takes effect when its compare does not hold": [
        put(A, 0, 1, at=2),
        put(B, 2, 3, at=3),
        lost(Cas(ModIs(2), C), 4),
        get(C, 5, 6),
    ],
    "two transactions on one revision succeed": [
        put(A, 0, 1, at=2),
        cas(ModIs(2), B, 2, 9, Written(3)),
        cas(ModIs(2), C, 2, 9, Written(4)),
    ],
    "two transactions on an absent key succeed": [
        cas(VersionIs(0), A, 0, 9, Written(2)),
        cas(VersionIs(0), B, 0, 9, Written(3)),
    ],
    "two transactions on one value succeed": [
        put(A, 0, 1),
        cas(ValueIs(A), B, 2, 9, Written()),
        cas(ValueIs(A), C, 2, 9, Written()),
    ],
    "a lost update": [
        put(A, 0, 1, at=2),
        get(A, 2, 3, mod=2),
        put(B, 4, 5, at=3),
        cas(ModIs(2), C, 6, 7, Written(4)),
    ],
    "a transaction fails although its compare holds": [
        put(A, 0, 1, at=2),
        cas(VersionIs(1), B, 2, 3, Read(A, 2, 1, 2, 2)),
    ],
    "a transaction fails and reads what it compared with": [
        lost(Put(A), 0),
        cas(ModIs(5), B, 2, 3, Read(A, 5)),
    ],
    "the other branch of a transaction reads stale": [
        put(A, 0, 1, at=2),
        put(B, 2, 3, at=3),
        cas(ModIs(9), C, 4, 5, Read(A, 2, 1, 2)),
    ],
    "a delete that found nothing": [put(A, 0, 1), delete(0, 2, 3)],
    "a delete of an absent key": [put(A, 0, 1), delete(1, 2, 3), delete(1, 4, 5)],
    "a version that jumps": [
        put(A, 0, 1),
        get(A, 2, 3, version=1),
        put(B, 4, 5),
        get(B, 6, 7, version=3),
    ],
    "a version that stands still": [put(A, 0, 1), put(B, 2, 3), get(B, 4, 5, version=1)],
    "a version that goes on after a delete": [
        put(A, 0, 1),
        delete(1, 2, 3),
        put(B, 4, 5),
        get(B, 6, 7, version=2),
    ],
    "another create revision without a delete": [
        put(A, 0, 1, at=2),
        put(B, 2, 3, at=3),
        get(B, 4, 5, create=3),
    ],
    "the old create revision after a delete": [
        put(A, 0, 1, at=2),
        delete(1, 2, 3, at=3),
        put(B, 4, 5, at=4),
        get(B, 6, 7, create=2),
    ],
    "a create revision that leaves no room for the version": [
        lost(Put(A), 0),
        lost(Put(B), 1),
        put(C, 2, 3, at=9),
        get(C, 4, 5, version=3, create=8),
    ],
    "a create revision after a write that came later": [
        lost(Put(A), 0),
        get(A, 1, 2),
        put(B, 3, 4, at=9),
        lost(Put(C), 5),
        get(C, 6, 7, mod=20, version=3, create=12),
    ],
    "a create revision that leaves no room before a write that came later": [
        lost(Put(A), 0),
        lost(Put(B), 1),
        put(C, 2, 3, at=9),
        get(C, 4, 5, version=3),
        put(A, 6, 7, at=20),
        get(A, 8, 9, version=4, create=8),
    ],
    "a create revision that left no room in a store that was read": [
        lost(Put(A), 0),
        lost(Put(B), 1),
        get(B, 2, 3, version=2, at=9),
        lost(Put(C), 4),
        get(C, 5, 6, version=3, create=9),
    ],
    "a store that is older than its key must be": [
        lost(Put(A), 0),
        lost(Put(B), 1),
        get(B, 2, 3, version=2, create=7),
        lost(Delete(), 4),
        get(None, 5, 6, at=8),
    ],
    "a first version that was created before it was written": [
        lost(Put(A), 0),
        get(A, 1, 2, mod=7, version=1, create=6),
    ],
    "an open write at two revisions": [lost(Put(A), 0), get(A, 1, 2, mod=7), get(A, 3, 4, mod=8)],
    "an open write at a revision of the past": [
        get(None, 0, 1, at=9),
        lost(Put(A), 2),
        get(A, 3, 4, mod=7),
    ],
    "an open write where there is no revision left": [
        put(A, 0, 1, at=2),
        lost(Put(B), 2),
        put(C, 3, 4, at=3),
        get(C, 5, 6, version=3),
    ],
    "another revision than was acknowledged": [put(A, 0, 1, at=2), get(A, 2, 3, mod=3)],
    "a key that is newer than the store": [put(A, 0, 9), get(A, 2, 3, mod=7, at=6)],
    "a write at the revision of an earlier one": [put(A, 0, 1, at=3), put(B, 2, 3, at=3)],
    "concurrent writes at one revision": [put(A, 0, 9, at=3), put(B, 0, 9, at=3)],
    "a read between two writes at a revision of the first": [
        put(A, 0, 1, at=5),
        put(B, 2, 9, at=8),
        get(B, 2, 9, at=6),
    ],
}


@pytest.mark.parametrize("operations", GOOD.values(), ids=GOOD)
def test_a_linearizable_history_is_accepted(operations: list[Operation]) -> None:
    for order in (operations, operations[::-1]):
        assert (violation := check(order)) is None, violation


@pytest.mark.parametrize("operations", BAD.values(), ids=BAD)
def test_a_history_that_is_not_linearizable_is_refused(operations: list[Operation]) -> None:
    assert check(operations) is not None
    assert check(operations[::-1]) is not None


@pytest.mark.parametrize("operations", BAD.values(), ids=BAD)
def test_a_bad_key_is_found_among_good_ones(operations: list[Operation]) -> None:
    # Without revisions: those of two keys would contradict each other.
    good = [replace(each, key=b"aaa") for each in GOOD["an open delete takes effect"]]
    violation = check([*good, *operations])
    assert not isinstance(violation, KeyViolation) or violation.key == KEY
    assert violation is not None


@pytest.mark.parametrize("operations", BAD.values(), ids=BAD)
def test_a_bad_history_is_bad_for_its_last_operation_only(operations: list[Operation]) -> None:
    assert check(operations[:-1]) is None


def test_an_unknown_write_cannot_have_the_revision_of_another_key() -> None:
    operations = [
        put(A, 0, 1, at=2),
        lost(Put(B), 2),
        put(C, 6, 7, at=4),
        get(C, 8, 9, version=3),
    ]
    assert check(operations) is None
    other = op(Put(A), 4, 5, Written(3), key=OTHER)
    assert isinstance(check([*operations, other]), KeyViolation)


def test_parts_of_an_unknown_transaction_may_have_one_revision() -> None:
    operations = [
        put(A, 0, 1, at=2),
        replace(lost(Put(B), 2), transaction=1),
        put(C, 6, 7, at=4),
        get(C, 8, 9, version=3),
        elsewhere(lost(Put(B), 2), 1),
        elsewhere(get(B, 3, 4, mod=3)),
    ]
    assert (violation := check(operations)) is None, violation


BY_VERSION = lost(Cas(VersionIs(1), b"x"), 0)
BY_VALUE = lost(Cas(ValueIs(A), b"y"), 0)
BOTH_WAYS = [(BY_VERSION, BY_VALUE), (BY_VALUE, BY_VERSION)]
EITHER_FITS = [put(A, 1, 2), put(B, 3, 4), get(B, 5, 6, version=3)]
ONLY_BY_VALUE_FITS = [put(A, 7, 8), put(B, 9, 10), get(B, 11, 12, version=6)]
ONLY_BY_VERSION_FITS = [
    delete(1, 7, 8),
    put(C, 9, 10),
    get(C, 11, 12),
    put(B, 13, 14),
    get(B, 15, 16, version=3),
]


@pytest.mark.parametrize("lost_ones", BOTH_WAYS)
@pytest.mark.parametrize("then", [ONLY_BY_VALUE_FITS, ONLY_BY_VERSION_FITS])
def test_of_open_writes_that_fit_either_may_be_needed_later(
    lost_ones: tuple[Operation, ...], then: list[Operation]
) -> None:
    # One of them came after the first put; which, only what follows can tell.
    operations = [*EITHER_FITS, *then]
    assert (violation := check([*lost_ones, *operations])) is None, violation
    for alone in lost_ones:
        assert check([alone, *operations]) is not None


@pytest.mark.parametrize("lost_ones", BOTH_WAYS)
def test_a_value_that_was_there_from_the_beginning_may_come_again(
    lost_ones: tuple[Operation, ...],
) -> None:
    initial = {KEY: KeyState(A, 1, Span(2, 2), Span(2, 2), 2)}
    operations = [*EITHER_FITS[1:], *ONLY_BY_VALUE_FITS]
    assert (violation := check([*lost_ones, *operations], initial=initial)) is None, violation


def test_many_lost_writes_do_not_make_many_searches() -> None:
    unseen = [lost(Put(b"%d" % number), 0) for number in range(100)]
    conditional = [lost(Cas(VersionIs(7), b"-%d" % number), 0) for number in range(100)]
    operations = [*unseen, *conditional, put(A, 1, 2), put(B, 3, 4)]
    assert check([*operations, get(B, 5, 6, version=103)]) is None
    assert check([*operations, get(B, 5, 6, version=104)], steps_max=20_000) is not None
    assert check([*operations, get(C, 5, 6)], steps_max=200_000) is not None


def test_a_key_may_be_there_from_the_beginning() -> None:
    initial = KeyState(A, 3, Span(9, 9), Span(4, 4), 20)
    read = get(A, 0, 1, mod=9, version=3, create=4)
    assert check([read]) is not None
    assert check([read, put(B, 2, 3, at=21)], initial={KEY: initial}) is None
    assert check([read, put(B, 2, 3, at=20)], initial={KEY: initial}) is not None


def test_a_violation_explains_itself() -> None:
    fitting = [put(b"%d" % number, number, number + 0.5, at=number + 2) for number in range(20)]
    stale = get(b"3", 30, 31)
    violation = check([*fitting, lost(Put(A), 3), stale])
    assert isinstance(violation, KeyViolation)
    assert violation.key == KEY
    assert violation.prefix == tuple(fitting)
    assert violation.state.mod == Span(21, 21)
    assert violation.unplaced == (stale,)
    assert violation.too_late == ()
    assert str(violation).splitlines() == [
        "b'key': no order of its operations explains their answers. At best, these fit:",
        "  (14 before)",
        *[f"  {operation}" for operation in fitting[-6:]],
        f"Now it is {violation.state}.",
        "None of these can be next, even after some of 1 unanswered writes:",
        f"  {stale}",
    ]


def test_a_violation_names_what_is_too_late_by_its_revision() -> None:
    fitting = [put(b"%d" % number, number, number + 0.5, at=number + 2) for number in range(20)]
    stale = get(b"3", 30, 31, mod=5)
    violation = check([*fitting, stale])
    assert isinstance(violation, KeyViolation)
    assert violation.prefix == tuple(fitting[:4])
    assert violation.unplaced == (fitting[4],)
    assert violation.too_late == (stale,)
    assert str(violation).splitlines()[-2:] == [
        "By their revisions these must be next, but they were invoked too late for that:",
        "  [30.000000, 31.000000] client: get -> b'3' (mod 5)",
    ]


def test_the_search_gives_up_loudly() -> None:
    operations = [put(b"%d" % number, 0, 9) for number in range(9)]
    read = get(b"4", 10, 11)
    assert check([*operations, read]) is None
    with pytest.raises(SearchTooLong, match="b'key', 10 operations: no answer after 20 steps"):
        check([*operations, get(A, 10, 11)], steps_max=20)
    assert check([*operations, get(A, 10, 11)]) is not None


@pytest.mark.parametrize("hidden", [0.0, 0.1])
def test_effort_grows_with_the_length_only(hidden: float) -> None:
    setting = Setting(clients=10, calls=300, lost=0.02, hidden=hidden)
    operations = Simulation(random.Random(1), setting).run()
    assert check(operations, steps_max=5 * len(operations)) is None


def test_a_stale_read_is_found_behind_thousands_of_operations_many_of_them_lost() -> None:
    setting = Setting(clients=10, calls=300, lost=0.03)
    simulation = Simulation(random.Random(1), setting)
    simulation.run()
    simulation.read_all()
    operations = simulation.operations
    assert check(operations) is None
    old = next(each for each in operations if each.action == Get() and each.result.version)
    stale = replace(operations[-1], result=replace(old.result, revision=None))
    violation = check([*operations[:-1], stale])
    assert isinstance(violation, KeyViolation)
    assert violation.too_late == (stale,)


# Revisions across keys.


def ask(revision: int, invoked: float, returned: float) -> Operation:
    return op(Ask("status"), invoked, returned, Header(revision), key=None)


def elsewhere(operation: Operation, transaction: Hashable | None = None) -> Operation:
    return replace(operation, key=OTHER, transaction=transaction)


@pytest.mark.parametrize(
    "operations",
    [
        [put(A, 0, 1, at=2), elsewhere(put(A, 2, 3, at=3)), ask(3, 4, 5)],
        [put(A, 0, 3, at=3), elsewhere(put(A, 2, 3, at=2))],
        [put(A, 0, 1, at=5), elsewhere(get(None, 1, 2, at=4))],
        [put(A, 0, 1, at=5), elsewhere(get(None, 2, 3)), ask(5, 4, 5), ask(5, 6, 7)],
        [ask(5, 0, 1), elsewhere(delete(0, 2, 3, at=5))],
        [get(A, 2, 9, mod=5, at=5), put(A, 0, 9, at=5), elsewhere(get(None, 2, 3, at=2))],
    ],
)
def test_revisions_that_only_grow_are_accepted(operations: list[Operation]) -> None:
    assert (violation := check(operations)) is None, violation


@pytest.mark.parametrize(
    "operations",
    [
        [ask(5, 0, 1), ask(4, 2, 3)],
        [put(A, 0, 1, at=5), ask(4, 2, 3)],
        [put(A, 0, 1, at=5), elsewhere(put(A, 2, 3, at=4))],
        [put(A, 0, 1, at=5), elsewhere(get(None, 2, 3, at=4))],
        [put(A, 0, 1, at=5), ask(5, 2, 3), elsewhere(delete(0, 4, 5, at=4))],
        [lost(Put(A), 0), get(A, 1, 2, mod=5), ask(4, 3, 4)],
        [ask(5, 0, 1), elsewhere(put(A, 2, 3, at=5))],
        [ask(9, 0, 1), ask(5, 0, 2), ask(6, 0, 3), ask(8, 4, 5)],
    ],
)
def test_a_revision_that_goes_back_is_found(operations: list[Operation]) -> None:
    violation = check(operations)
    assert isinstance(violation, RevisionViolation)
    assert "went back" in str(violation)
    assert all(str(each) in str(violation) for each in violation.operations)


def test_two_acknowledged_writes_never_have_the_same_revision() -> None:
    violation = check([put(A, 0, 9, at=2), elsewhere(put(A, 0, 9, at=2))])
    assert isinstance(violation, RevisionViolation)
    assert "revision 2 was given twice" in str(violation)
    assert check([put(A, 0, 9, at=2), elsewhere(delete(1, 0, 9, at=2))]) is not None
    assert check([put(A, 0, 9, at=2), elsewhere(delete(0, 0, 9, at=2))]) is None


def test_the_writes_of_one_transaction_share_their_revision() -> None:
    first = replace(put(A, 0, 1, at=2), transaction=1)
    assert check([first, elsewhere(put(B, 0, 1, at=2), 1)]) is None
    assert check([first, elsewhere(put(B, 0, 1, at=2), 2)]) is not None
    assert check([first, elsewhere(put(B, 0, 1, at=2))]) is not None
    assert check([first, elsewhere(put(B, 2, 3, at=2), 1)]) is None


def test_a_read_may_tell_that_a_revision_was_given_twice() -> None:
    unseen = [put(A, 0, 9, at=5), elsewhere(lost(Put(B), 0))]
    told = elsewhere(get(B, 2, 3, mod=5))
    assert check([*unseen, elsewhere(get(B, 2, 3, mod=4))]) is None
    assert isinstance(check([*unseen, told]), RevisionViolation)
    one = [replace(unseen[0], transaction=1), replace(unseen[1], transaction=1)]
    assert check_revisions([*one, told]) is None


# Recording.


def test_a_call_is_recorded_with_its_times_and_result() -> None:
    history = History(clock=iter([1.5, 2.5]).__next__)
    with history.call("me", KEY, Put(A), transaction=7) as call:
        call.returned(Written(2))
    assert list(history) == [Operation("me", KEY, Put(A), 1.5, 2.5, Written(2), 7)]


def test_an_exception_leaves_a_call_without_an_answer() -> None:
    history = History(clock=itertools.count().__next__)
    with pytest.raises(ConnectionError), history.call("me", KEY, Put(A)):
        raise ConnectionError
    assert history.operations() == [Operation("me", KEY, Put(A), 0)]


def test_an_exception_after_the_answer_changes_nothing() -> None:
    history = History(clock=itertools.count().__next__)

    def call_and_stumble() -> None:
        with history.call("me", KEY, Put(A)) as call:
            call.returned(Written())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call_and_stumble()
    assert history.operations() == [Operation("me", KEY, Put(A), 0, 1, Written())]


def test_a_call_under_way_has_no_answer() -> None:
    history = History(clock=itertools.count().__next__)
    with history.call("me", KEY, Put(A)) as call:
        assert history.operations() == [Operation("me", KEY, Put(A), 0)]
        call.lost()
    assert history.operations() == [Operation("me", KEY, Put(A), 0)]


def test_what_had_no_effect_is_left_out() -> None:
    history = History()
    with history.call("me", KEY, Put(A)) as call:
        call.failed()
    assert history.operations() == []


def test_how_a_call_ended_must_be_said() -> None:
    history = History()
    silent = history.call("me", KEY, Get())
    silent.__enter__()
    with pytest.raises(RuntimeError, match="say returned, failed or lost"):
        silent.__exit__(None, None, None)
    assert [each.returned for each in history] == [None]


def test_how_a_call_ended_is_said_once() -> None:
    history = History()
    with history.call("me", KEY, Get()) as call:
        call.lost()
        with pytest.raises(RuntimeError, match="has ended before"):
            call.returned(Read(A))
    assert [each.returned for each in history] == [None]


def test_an_operation_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="before it was invoked"):
        put(A, 2, 1)
    with pytest.raises(ValueError, match="but the result is None"):
        op(Put(A), 0, 1, None)
    with pytest.raises(ValueError, match="0 or 1"):
        Deleted(2)


def test_threads_record_into_one_history() -> None:
    history = History()
    values: dict[bytes, bytes] = {}
    lock = threading.Lock()

    def work(client: int) -> None:
        key = b"%d" % (client % 2)
        for number in range(50):
            value = b"%d/%d" % (client, number)
            with history.call(client, key, Put(value)) as writing:
                with lock:
                    values[key] = value
                writing.returned(Written())
            with history.call(client, key, Get()) as reading:
                with lock:
                    found = values[key]
                reading.returned(Read(found))

    with ThreadPoolExecutor(6) as pool:
        for each in [pool.submit(work, client) for client in range(6)]:
            each.result()
    operations = history.operations()
    assert len(operations) == 6 * 50 * 2
    assert check(history) is None
