"""The states of a lock in a client: only the transitions of the table are possible."""

import asyncio
import itertools

import pytest

from leasehold.locks.lock_state import TRANSITIONS, LockChange, State, next_state
from tests.support.faulty_engine import World, play


@pytest.mark.parametrize(("state", "change"), list(itertools.product(State, LockChange)))
def test_a_change_is_in_the_table_or_an_assertion_error(state: State, change: LockChange) -> None:
    if (state, change) in TRANSITIONS:
        assert next_state(state, change) is TRANSITIONS[state, change]
    else:
        with pytest.raises(AssertionError, match=f"a lock that is {state.value} cannot change"):
            next_state(state, change)


def test_a_lock_is_owned_only_by_a_client_that_was_in_the_queue() -> None:
    before = [state for (state, _), after in TRANSITIONS.items() if after is State.OWNED]
    assert before == [State.CONTENDING]


def test_a_lock_that_is_given_up_is_never_owned_again_without_the_queue() -> None:
    after = {after for (state, _), after in TRANSITIONS.items() if state is State.YIELDING}
    assert after == {State.FREE}


@pytest.mark.parametrize("state", list(State))
def test_each_state_can_be_reached_and_left(state: State) -> None:
    assert state in TRANSITIONS.values()
    assert state in {before for before, _ in TRANSITIONS}


def test_a_lock_goes_through_its_states() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        seen: list[State] = []

        async with a.lock("x"):
            state = a._locks.get(b"x")
            seen.append(state.state)
            waiting = asyncio.ensure_future(b.lock("x").acquire())
            await world.until(lambda: world.keys("x") == 2)
            seen.append(b._locks.get(b"x").state)
        seen.append(state.state)  # the waiter gets it: it is not cached
        (await waiting).release()
        seen.append(state.state)
        seen.append(b._locks.get(b"x").state)  # idle, in the cache
        assert seen == [State.OWNED, State.CONTENDING, State.YIELDING, State.FREE, State.OWNED]

    play(scene)


def test_an_illegal_change_is_an_error_of_the_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x"):
            with pytest.raises(AssertionError, match="a lock that is owned cannot change"):
                a._locks.get(b"x")._change(LockChange.GRANTED)

    play(scene)
