"""Barriers: all are there at one revision, or nobody passes."""

import asyncio
from typing import Any

import pytest

from leasehold import Compacted, SessionExpired, Token
from tests.support.faulty_engine import LOSSES, Fault, Participant, World, play


def opened(world: World) -> bool:
    return any(pair.key.endswith(b"/opened") for pair in world.pairs())


def arrived(world: World) -> int:
    return sum(not pair.key.endswith(b"/opened") for pair in world.pairs())


def at(
    client: Participant, parties: int = 3, timeout: float | None = None
) -> "asyncio.Task[Token]":
    return asyncio.ensure_future(client.barrier("start", parties).wait(timeout))


def test_nobody_goes_on_until_all_are_there_and_all_have_one_token() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(name) for name in "abc"]
        waits: list[asyncio.Task[Token]] = []
        for client in clients:
            await asyncio.sleep(10.0)
            assert not any(wait.done() for wait in waits)
            waits.append(at(client))
        async with asyncio.timeout(0.5):
            tokens = set(await asyncio.gather(*waits))
        assert len(tokens) == 1
        [pair] = world.pairs()
        assert (pair.key, pair.mod_revision) == (b"start/parties/opened", tokens.pop().revision)

    play(scene)


def test_parties_of_one_client_are_several() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        tokens = await asyncio.gather(*(at(client, 5) for _ in range(5)))
        assert len(set(tokens)) == 1
        assert await at(client, 1) > tokens[0]

    play(scene)


def test_it_can_be_used_again_at_once_and_no_leftover_is_counted() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(name) for name in "abcd"]
        rounds: list[list[Token]] = [[] for _ in clients]

        async def work(number: int) -> None:
            for _ in range(6):
                rounds[number].append(await clients[number].barrier("start", 4).wait())

        await asyncio.gather(*map(work, range(4)))
        assert all(tokens == rounds[0] for tokens in rounds)
        assert len(set(rounds[0])) == 6
        late = at(clients[0], 4)
        await asyncio.sleep(5.0)
        assert not late.done()
        late.cancel()
        await world.until(lambda: not arrived(world))

    for seed in range(5):
        play(scene, seed)


def test_more_than_the_parties_pass_in_groups() -> None:
    async def scene(world: World) -> None:
        clients = [world.client(name) for name in "abcdefg"]
        waits = [at(client, 3) for client in clients]
        await asyncio.sleep(5.0)
        passed = [wait.result() for wait in waits if wait.done()]
        assert sorted(map(passed.count, set(passed))) == [3, 3]
        assert arrived(world) == 1
        for wait in waits:
            wait.cancel()

    for seed in range(5):
        play(scene, seed)


def test_who_died_before_does_not_count() -> None:
    async def scene(world: World) -> None:
        a, b, c, d = (world.client(name) for name in "abcd")
        first, second = at(a), at(b)
        await world.until(lambda: arrived(world) == 2)
        a.engine.is_cut_off = True
        with pytest.raises(SessionExpired):
            await first
        await world.until(lambda: arrived(world) == 1)
        third = at(c)
        await asyncio.sleep(5.0)
        assert not second.done()
        tokens = await asyncio.gather(second, third, at(d))
        assert len(set(tokens)) == 1

    play(scene)


def test_who_dies_as_the_last_keeps_the_others_until_its_lease_is_over() -> None:
    async def scene(world: World) -> None:
        a, b, c, d = (world.client(name) for name in "abcd")
        first, second = at(a), at(b)
        await world.until(lambda: arrived(world) == 2)
        c.engine.trouble_with("txn", 3, Fault.REQUEST_LOST)  # it arrives, and does not open
        third = at(c)
        await world.until(lambda: arrived(world) == 3)
        c.engine.is_cut_off = True
        await asyncio.sleep(1.0)
        fourth = at(d)
        with pytest.raises(SessionExpired):
            await third
        tokens = await asyncio.gather(first, second, fourth)
        assert len(set(tokens)) == 1

    play(scene)


def test_who_has_waited_long_enough_is_not_counted() -> None:
    async def scene(world: World) -> None:
        a, b, c, d = (world.client(name) for name in "abcd")
        with pytest.raises(TimeoutError, match=r"'start': only 1 of 3 .* within 2 s"):
            await at(a, 3, 2.0)
        with pytest.raises(TimeoutError, match="only 1 of 3"):
            await at(a, 3, 0)
        assert not world.pairs()
        first, second = at(b), at(c)
        await asyncio.sleep(1.0)
        assert arrived(world) == 2
        token = await at(d, 3, 0)
        assert token == await first == await second

    play(scene)


def test_who_runs_out_of_time_has_passed_or_not_and_says_which() -> None:
    """Whether the time is over, or the barrier opened, is decided at the engine."""
    outcomes = set()
    for step in range(40):

        async def scene(world: World, step: int = step) -> None:
            a, b = world.client("a"), world.client("b")
            a.engine.delay_s = b.engine.delay_s = 0.4
            first = at(a, 2, 3.0)
            await asyncio.sleep(step * 0.08)
            second = at(b, 2, 4.0)
            done = await asyncio.gather(first, second, return_exceptions=True)
            kinds = {type(each) for each in done}
            assert len(kinds) == 1, f"one has passed and the other has not: {done}"
            outcomes.add(kinds.pop())
            await world.until(lambda: not arrived(world))

        play(scene)
    assert outcomes == {Token, TimeoutError}


@pytest.mark.parametrize("fault", LOSSES)
@pytest.mark.parametrize("who", [0, 1, 2])
def test_nobody_counts_twice_whatever_is_lost(fault: Fault, who: int) -> None:
    for number in range(1, 7):

        async def scene(world: World, number: int = number) -> None:
            clients = [world.client(name) for name in "abc"]
            clients[who].engine.trouble_with("txn", number, fault)
            for _ in range(2):
                waits = []
                for client in clients:
                    waits.append(at(client))
                    await asyncio.sleep(0.3)
                tokens = await asyncio.gather(*waits)
                assert len(set(tokens)) == 1
            await asyncio.sleep(5.0)
            assert arrived(world) == 0

        play(scene)


def test_an_arrival_without_an_answer_that_has_passed_does_not_arrive_again() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await at(a, 1)  # there is a session
        await world.engine.compact(world.engine._store.revision)
        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        a.engine.delay_s = 1.0  # until it knows that there is no answer
        first = at(a, 2)
        await world.until(lambda: arrived(world) == 1)
        token = await at(b, 2)
        await b.close()  # and its key, which told of the opening, with it
        assert not world.pairs()
        assert await first == token
        assert not world.pairs()

    play(scene)


def test_who_missed_the_opening_finds_it_in_the_history() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        first = at(a, 2)
        await world.until(lambda: arrived(world) == 1)
        a.engine.is_deaf = True
        token = await at(b, 2)
        await b.close()
        await asyncio.sleep(1.0)
        assert not first.done()
        a.engine.is_deaf = False
        a.engine.break_watches(Compacted(1, 2))
        assert await first == token

    play(scene)


def test_who_cannot_find_out_says_so_and_does_not_arrive_again() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        first = at(a, 2)
        await world.until(lambda: arrived(world) == 1)
        a.engine.is_deaf = True
        await at(b, 2)
        await world.engine.compact(world.engine._store.revision)
        a.engine.is_deaf = False
        a.engine.break_watches(Compacted(1, 2))
        with pytest.raises(SessionExpired, match="compacted"):
            await first
        assert arrived(world) == 0

    play(scene)


def test_a_key_that_was_deleted_by_hand_has_not_passed() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        waiting = at(client)
        await world.until(lambda: arrived(world) == 1)
        await world.engine.delete(world.pairs()[0].key)
        with pytest.raises(SessionExpired, match="deleted or replaced"):
            await waiting

    play(scene)


def test_cancelled_at_any_time_it_leaves_no_key() -> None:
    for step in range(20):

        async def scene(world: World, cancel_at: float = 0.2 + step / 4) -> None:
            a, b, c = (world.client(name) for name in "abc")
            a.engine.delay_s = 0.5
            first, second = at(a), at(b)
            await asyncio.sleep(cancel_at)
            first.cancel()
            await asyncio.sleep(5.0)
            assert arrived(world) == 1
            tokens = await asyncio.gather(second, at(c), at(a))
            assert len(set(tokens)) == 1

        play(scene)


def test_all_must_agree_on_the_parties() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        first = at(a, 2)
        await world.until(lambda: arrived(world) == 1)
        with pytest.raises(ValueError, match=r"parties=2 by a.*parties=3"):
            await at(b, 3)
        assert await at(b, 2) == await first
        assert opened(world)
        assert await at(b, 1) > await first

    play(scene)


def test_as_many_parties_as_one_transaction_can_have() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        most = client.engine.limits.txn_operations - 1
        with pytest.raises(ValueError, match=f"between 1 and {most} .* {most + 1} operations"):
            client.barrier("start", most + 1)
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="parties must be between 1"):
                client.barrier("start", wrong)
        nothing: Any = None
        with pytest.raises(TypeError, match="parties"):
            client.barrier("start", nothing)
        tokens = await asyncio.gather(*(at(client, most) for _ in range(most)))
        assert len(set(tokens)) == 1

    play(scene)


@pytest.mark.parametrize(
    "said", [b"[" * 200_000, b'{"passed":"%b"}', b'{"passed":["%b"]}', b'{"passed":7}', b"\xff"]
)
def test_what_no_barrier_says_is_no_opening(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        waiting = at(a, 2)
        await world.until(lambda: arrived(world) == 1)
        tail = world.pairs()[0].key.removeprefix(b"start/parties/")
        await world.engine.put(b"start/parties/opened", said.replace(b"%b", tail))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        assert await at(b, 2) == await waiting

    play(scene)
    assert "has failed" not in caplog.text
