"""`renewal.state` and its stored form: a set is read as it was written, for all durations."""

from hypothesis import given
from hypothesis import strategies as st

from leasehold import ANY, FOREVER
from leasehold.basics.durations import NEVER, Duration, Requested
from leasehold.events.state import EventTarget
from leasehold.renewal import stored
from leasehold.renewal.state import (
    FAILURES_PER_TRANSACTION,
    Member,
    MemberChange,
    MemberTerms,
    SetEvent,
    SetState,
    WarningState,
    end_after,
    terms_of,
)

WALLS = st.floats(0.0, 4e9)
SECONDS = st.floats(0.001, 1e300) | st.sampled_from([0.001, 9.2e15, 2**63 / 1000.0])
DESIRED: st.SearchStrategy[Requested] = (
    SECONDS | st.floats(-1e300, 0.0) | st.sampled_from([FOREVER, ANY])
)
RENEW: st.SearchStrategy[Requested] = SECONDS | st.sampled_from([FOREVER, ANY])
LENGTHS: st.SearchStrategy[Duration] = SECONDS | st.just(0.0) | st.just(FOREVER)

NAMES = [f"{number:032x}" for number in range(6)]


@given(DESIRED, RENEW, WALLS)
def test_terms_follow_the_rules_for_durations(
    desired: Requested, renew: Requested, wall: float
) -> None:
    try:
        terms = terms_of(desired, renew, wall)
    except ValueError:
        assert renew is ANY
        assert desired is not FOREVER
        return
    is_wanted = desired is FOREVER or (isinstance(desired, float) and desired > 0.0)
    assert (terms is not None) == is_wanted
    if terms is not None:
        assert terms.desired_end > wall or terms.desired_end == wall + 0.001
        assert renew is not ANY or terms.desired_end == NEVER
        assert terms.renew == renew


@given(DESIRED, RENEW, WALLS, LENGTHS, SECONDS, st.binary(), st.integers(0, 2**62))
def test_a_member_that_is_stored_is_read_as_it_was(
    desired: Requested,
    renew: Requested,
    wall: float,
    left: Duration,
    term_s: float,
    reference: bytes,
    order: int,
) -> None:
    if renew is ANY:
        desired = FOREVER
    terms = terms_of(desired, renew, wall)
    if terms is None:
        return
    member = Member(NAMES[0], reference, terms, end_after(left, wall), term_s, order)
    rows = {stored.member_suffix(member.digest): stored.member_value(member)}
    (found,) = stored.members_of(rows)
    assert (found.digest, found.reference, found.order) == (NAMES[0], reference, order)
    for before, after in (
        (terms.desired_end, found.terms.desired_end),
        (member.end, found.end),
        (min(term_s, 1e15), min(found.term_s, 1e15)),
    ):
        assert before == after or abs(before - after) <= 0.001
    if isinstance(renew, float):
        assert isinstance(found.terms.renew, float)
        assert 0.0 < found.terms.renew <= max(renew, 0.001)
    else:
        assert found.terms.renew is renew
    again = {stored.member_suffix(found.digest): stored.member_value(found)}
    assert again == rows, "a restart changes nothing"


TARGETS = st.none() | st.builds(EventTarget, st.sampled_from(["", "host:1"]), st.text(min_size=1))


@given(
    TARGETS,
    st.binary(),
    st.lists(st.binary(), max_size=5),
    st.integers(0, 2**40),
    st.none() | st.builds(WarningState, st.floats(0.0, 1e9), st.integers(-1, 2**40)),
    st.integers(0, 5),
)
def test_a_registration_that_is_stored_is_read_as_it_was(
    target: EventTarget | None,
    handback: bytes,
    payloads: list[bytes],
    before: int,
    warning: WarningState | None,
    dropped: int,
) -> None:
    kind = SetEvent.EXPIRATION_WARNING
    number = before + len(payloads)
    value = stored.registration_value(number, target, handback, warning, before + dropped)
    rows = {stored.registration_suffix(kind): value}
    for place, payload in enumerate(payloads, before + 1):
        rows[stored.event_suffix(kind, place)] = stored.event_value(payload)
        rows[stored.event_suffix(SetEvent.RENEWAL_FAILURE, place)] = stored.event_value(b"other")
    queue, found = stored.queue_of(rows, "c/renewal", "s", kind, 10)
    assert (queue.number, queue.target) == (number, target)
    kept = list(range(before + dropped + 1, number + 1)) if target is not None else []
    assert queue.pending == kept
    if target is None:
        assert found is None
    else:
        assert queue.handback == handback
        assert found is not None
        if warning is not None:
            assert found.told_term == warning.told_term
            assert abs(found.min_warning_s - warning.min_warning_s) <= 0.001


@given(st.floats(0.0, 1e6), st.integers(0, 3), st.integers(-1, 3), st.floats(0.0, 1e6))
def test_a_warning_is_due_once_for_each_term_and_never_late(
    min_warning_s: float, term: int, told_term: int, remaining_s: float
) -> None:
    wait_s = WarningState(min_warning_s, told_term).wait_s(term, remaining_s)
    if term == told_term:
        assert wait_s == NEVER
    else:
        assert 0.0 <= wait_s <= remaining_s
        assert remaining_s - wait_s <= max(min_warning_s, 0.0) + 1e-6 or wait_s == 0.0
        assert wait_s == 0.0 or abs(remaining_s - wait_s - min_warning_s) < 1e-6


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "drop", "expired", "leave", "fail", "write"]),
        st.sampled_from(NAMES),
    ),
    max_size=60,
)


@given(STEPS)
def test_members_leave_once_and_in_order(steps: list[tuple[str, str]]) -> None:
    """A model with a plain set of names and a list of those that have left."""
    state, model, left, orders = SetState(), set[str](), list[tuple[str, bool]](), list[int]()
    terms = MemberTerms(NEVER, FOREVER)
    for step, name in steps:
        is_member = name in model
        if step in ("add", "expired"):
            admission = state.admission(name, terms, is_over=step == "expired")
            if is_member:
                assert admission is MemberChange.REPLACED
            elif step == "expired":
                assert admission is MemberChange.EXPIRED
            else:
                assert admission is MemberChange.ADDED
                member = state.new_member(name, b"", terms, 1.0, 1.0)
                assert all(member.order > order for order in orders)
                orders.append(member.order)
                state.restore(member)
                model.add(name)
        elif step == "drop":
            admission = state.admission(name, None, is_over=False)
            assert admission is (MemberChange.REMOVED if is_member else MemberChange.IGNORED)
        elif step == "write":
            batch = state.leaving_now()
            assert len(batch) <= FAILURES_PER_TRANSACTION
            assert [(each.member.digest, each.is_failure) for each in batch] == left[: len(batch)]
            state.written(len(batch))
            del left[: len(batch)]
        elif is_member:
            member, is_failure = state.members[name], step == "fail"
            assert state.leave(member, is_failure=is_failure, error=None)
            assert not state.leave(member, is_failure=True, error=None)
            model.discard(name)
            left.append((name, is_failure))
        assert set(state.members) == model
        assert len(state.leaving) == len(left)
    orders = [each.order for each in state.members.values()]
    assert orders == sorted(orders)
    for order in (0, *orders):
        page = [each.order for each in state.after(order, 2)]
        assert page == [each for each in orders if each > order][:2]
