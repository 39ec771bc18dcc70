"""A value that servers share in one key: changes of several of them, and of other programs."""

import pytest

from leasehold.errors import TooBusy
from leasehold.keyspace.operations import Put
from leasehold.services import shared_value
from leasehold.services.shared_value import SharedValue
from tests.support.fake_network import virtually
from tests.support.held_watches import HeldEngine, held_engine

KEY = b"leasehold/test"


def number_in(engine: HeldEngine) -> SharedValue[int]:
    return SharedValue(engine, KEY, 0, decode=int, encode=lambda number: b"%d" % number)


@virtually
async def test_a_value_that_was_never_changed_is_the_default_and_has_no_key() -> None:
    async with held_engine() as engine:
        assert await number_in(engine).read() == (0, 0)
        assert await number_in(engine).update(lambda number: number) == (0, 0)
        assert (await engine.range(KEY)).pairs == []


@virtually
async def test_a_change_returns_the_value_and_its_revision() -> None:
    async with held_engine() as engine:
        changed = await number_in(engine).update(lambda number: number + 1)
        assert changed == await number_in(engine).read() == (1, (await engine.range(KEY)).revision)


@virtually
async def test_a_change_is_made_again_from_the_state_that_came_first() -> None:
    async with held_engine() as engine:
        seen: list[int] = []

        def change(number: int) -> int:
            if not seen:
                engine._store.apply(Put(KEY, b"41"))
            seen.append(number)
            return number + 1

        assert (await number_in(engine).update(change)).value == 42
        assert seen == [0, 41]


@virtually
async def test_a_value_of_another_program_counts_as_the_default_and_is_replaced() -> None:
    async with held_engine() as engine:
        await engine.put(KEY, b"not a number")
        assert (await number_in(engine).read()).value == 0
        await number_in(engine).update(lambda number: number + 1)
        assert (await engine.range(KEY)).pairs[0].value == b"1"


@virtually
async def test_a_change_that_raises_writes_nothing() -> None:
    def change(_: int) -> int:
        raise ValueError("refused")

    async with held_engine() as engine:
        with pytest.raises(ValueError, match="refused"):
            await number_in(engine).update(change)
        assert (await engine.range(KEY)).pairs == []


@virtually
async def test_a_change_that_always_comes_too_late_fails_in_the_end() -> None:
    async with held_engine() as engine:
        calls: list[int] = []

        def change(number: int) -> int:
            calls.append(number)
            engine._store.apply(Put(KEY, b"%d" % len(calls)))
            return -1

        with pytest.raises(TooBusy, match="leasehold/test is changed by other servers"):
            await number_in(engine).update(change)
        assert len(calls) == shared_value.MAX_CONFLICTS
