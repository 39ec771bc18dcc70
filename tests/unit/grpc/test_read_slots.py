"""Slots for long reads: how many at a time, whose turn it is, and who loses one."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from leasehold.basics.event_loop import RunningLoop
from leasehold.errors import Status
from leasehold.grpc import read_slots
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.read_slots import (
    MAX_HELD_OF_CONNECTION_BYTES,
    MAX_READS,
    MIN_TAKEN_BYTES,
    PATIENCE_S,
    ReadSlots,
    Slot,
)
from leasehold.testing import run_virtual


def virtual(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await settle()

        run_virtual(main)

    return run


class Reads:
    """Reads of some connections that have asked for a slot, in the order in which they got one."""

    def __init__(self, slots: ReadSlots) -> None:
        self.slots = slots
        self.got: list[tuple[str, Slot]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, connection: str) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(self._ask(connection))
        self._tasks.add(task)
        return task

    async def _ask(self, connection: str) -> None:
        self.got.append((connection, await self.slots.acquire(connection)))

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.got)

    def hold(self, place: int, size_bytes: int = 1) -> None:
        """Complete an answer, of which the peer takes nothing."""
        self.got[place][1].holds(size_bytes, RunningLoop(), lambda: size_bytes, lambda: None)

    def release(self, place: int) -> None:
        self.got[place][1].release()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@virtual
async def test_no_more_reads_than_slots_and_one_slot_is_left_for_another_connection() -> None:
    reads = Reads(ReadSlots())
    for _ in range(200):
        reads.ask("a")
    for place in range(MAX_READS - 1):
        await settle()
        reads.hold(place)
    await settle()
    assert reads.names == "a" * (MAX_READS - 1)
    reads.ask("b")
    await settle()
    assert reads.names == "a" * (MAX_READS - 1) + "b"
    assert reads.slots.running == MAX_READS
    assert reads.slots.queued == 200 - (MAX_READS - 1)


@virtual
async def test_a_read_that_is_taken_slowly_gives_its_slot_to_others_that_wait() -> None:
    reads = Reads(ReadSlots())
    host = RunningLoop()
    for name in "abcd":
        reads.ask(name)
    await settle()
    left = [100 * MIN_TAKEN_BYTES] * MAX_READS

    def take() -> None:
        left[:] = [data - 2 * MIN_TAKEN_BYTES for data in left]
        host.call_later(PATIENCE_S / 2, take)

    take()
    for place, (_, slot) in enumerate(reads.got):
        slot.holds(left[place], host, partial(left.__getitem__, place), lambda: None)
    await asyncio.sleep(5 * PATIENCE_S)
    assert reads.slots.running == MAX_READS, "no other read waits"
    reads.ask("e")
    await asyncio.sleep(1.5 * PATIENCE_S)
    assert reads.names == "abcde"
    ((name, slot),) = [each for each in reads.got if each[1].is_lost]
    assert not reads.slots.is_slow(name), "it takes enough, so that its next reads are not refused"
    slot.release()
    assert reads.slots.running == MAX_READS, "its slot was given away before"


@virtual
async def test_slots_go_round_robin_and_one_to_each_connection_while_others_wait() -> None:
    reads = Reads(ReadSlots(2))
    for name in "aaaabbc":
        reads.ask(name)
    await settle()
    assert reads.names == "ab"
    for place in range(5):
        reads.release(place)
        await settle()
    # "c" came last, and waits for one round; a second slot for "a" is the last one, and is kept.
    assert reads.names == "ababca"


@virtual
async def test_a_slot_is_released_once() -> None:
    reads = Reads(ReadSlots(2))
    reads.ask("a")
    await settle()
    reads.release(0)
    reads.release(0)
    assert reads.slots.running == 0


@virtual
async def test_a_read_that_is_given_up_leaves_the_queue() -> None:
    reads = Reads(ReadSlots(2))
    for name in "ab":
        reads.ask(name)
    await settle()
    given_up = reads.ask("c")
    reads.ask("d")
    await settle()
    given_up.cancel()
    await settle()
    assert reads.slots.queued == 1
    reads.release(0)
    await settle()
    assert reads.names == "abd"


@virtual
async def test_the_queues_are_bounded() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read_slots, "MAX_QUEUED", 3)
        patched.setattr(read_slots, "MAX_QUEUED_OF_CONNECTION", 2)
        reads = Reads(ReadSlots(2))
        for name in "aaa":
            reads.ask(name)
        await settle()
        with pytest.raises(RpcError, match="too many long reads") as refused:
            await reads.slots.acquire("a")
        assert refused.value.status == Status.RESOURCE_EXHAUSTED
        reads.ask("b")
        reads.ask("b")
        await settle()
        with pytest.raises(RpcError, match="too many long reads"):
            await reads.slots.acquire("c")


@virtual
async def test_a_read_whose_peer_takes_nothing_for_ten_seconds_loses_its_slot() -> None:
    reads = Reads(ReadSlots(2))
    for name in "abc":
        reads.ask(name)
    await settle()
    left = {"a": 1_000_000, "b": 1_000_000}
    for name, slot in reads.got:
        slot.holds(1_000_000, RunningLoop(), lambda name=name: left[name], lambda: None)  # type: ignore[misc]
    left["b"] -= MIN_TAKEN_BYTES
    await asyncio.sleep(PATIENCE_S + 1)
    assert reads.names == "abc"  # "a" has lost its slot
    assert reads.slots.running == 2
    assert reads.slots.held_bytes == 2_000_000
    reads.release(0)
    assert reads.slots.running == 2
    assert reads.slots.held_bytes == 1_000_000


@virtual
async def test_slow_answers_are_reset_when_too_much_is_held() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read_slots, "MAX_HELD_BYTES", 1_500_000)
        reads = Reads(ReadSlots(2))
        resets: list[str] = []
        for name in "ab":
            reads.ask(name)
        await settle()
        for name, slot in reads.got:
            slot.holds(
                1_000_000,
                RunningLoop(),
                lambda: 1_000_000,
                lambda name=name: resets.append(name),  # type: ignore[misc]
            )
        await asyncio.sleep(PATIENCE_S + 1)
        assert not resets
        reads.ask("c")
        await settle()
        assert resets == ["a"]
        assert reads.names == "abc"
        assert reads.slots.held_bytes == 1_000_000


@virtual
async def test_a_connection_has_one_answer_under_construction() -> None:
    reads = Reads(ReadSlots())
    for name in "aab":
        reads.ask(name)
    await settle()
    assert reads.names == "ab", "the second answer is begun when the first one is complete"
    reads.hold(0)
    await settle()
    assert reads.names == "aba"


@virtual
async def test_a_read_that_fails_lets_the_next_one_of_its_connection_begin() -> None:
    reads = Reads(ReadSlots())
    for name in "aa":
        reads.ask(name)
    await settle()
    reads.release(0)
    await settle()
    assert reads.names == "aa"
    reads.release(1)
    assert reads.slots.running == 0


@virtual
async def test_a_connection_that_holds_much_gets_no_slot_before_it_has_taken_some() -> None:
    reads = Reads(ReadSlots())
    for name in "aab":
        reads.ask(name)
    await settle()
    reads.hold(0, MAX_HELD_OF_CONNECTION_BYTES)
    await settle()
    assert reads.names == "ab"
    reads.release(0)
    await settle()
    assert reads.names == "aba"
    assert reads.slots.held_bytes == 0


@virtual
async def test_reads_of_a_connection_that_holds_much_and_takes_nothing_are_refused() -> None:
    reads = Reads(ReadSlots())
    reads.ask("a")
    await settle()
    waiting = asyncio.ensure_future(reads.slots.acquire("a"))
    reads.hold(0, MAX_HELD_OF_CONNECTION_BYTES)
    await asyncio.sleep(PATIENCE_S + 1)
    with pytest.raises(RpcError, match="answers on this connection are not taken") as refused:
        await waiting
    assert refused.value.status == Status.RESOURCE_EXHAUSTED
    assert reads.slots.running == 0


@virtual
async def test_taking_an_answer_that_lost_its_slot_lets_the_connection_read_again() -> None:
    reads = Reads(ReadSlots(1))
    reads.ask("a")
    await settle()
    left = MAX_HELD_OF_CONNECTION_BYTES
    slot = reads.got[0][1]
    slot.holds(left, RunningLoop(), lambda: left, lambda: None)
    reads.ask("a")
    left -= MIN_TAKEN_BYTES  # enough, but another read waits
    await asyncio.sleep(PATIENCE_S + 1)
    assert slot.is_lost
    assert reads.names == "a"
    slot.release()
    await settle()
    assert reads.names == "aa"


@virtual
async def test_room_is_made_while_the_connection_of_the_reset_answer_waits() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(read_slots, "MAX_HELD_BYTES", 1)
        reads = Reads(ReadSlots(1))
        reads.ask("a")
        await settle()
        reads.hold(0, 2)
        await asyncio.sleep(PATIENCE_S + 1)
        for name in "ba":
            reads.ask(name)
        await settle()
        assert reads.names == "ab"
        assert reads.slots.running == 1, "the slot is handed out once"
        reads.release(1)
        await settle()
        assert reads.names == "aba"
