"""Counts of acquisitions: refusals, the close of a client, and values of other programs."""

import asyncio

import pytest

from leasehold.engine.remote.etcd_messages import range_request
from leasehold.engine.values import TxnResult
from leasehold.errors import CallRefused, Closed, ConnectFailed, LeaseholdError, TooBusy
from leasehold.keyspace.operations import Range
from leasehold.locks.lock import BREATHE
from leasehold.locks.lock_keys import MAX_NUMBER, counter_key
from tests.support.faulty_engine import Fault, Participant, World, play


async def use(client: Participant, name: str, times: int = 1, *, count: bool = False) -> None:
    """Acquire a lock several times."""
    for _ in range(times):
        async with client.lock(name, count=count):
            pass


def test_a_refused_counter_costs_the_count_and_no_other_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 3, count=True)
        other = await a.lock("y").acquire()
        a.engine.trouble_with("txn", 1, CallRefused("permission denied"))
        await use(b, "x", count=True)
        other.check()
        other.release()
        assert (await a.count_acquisitions("x")).counts == {"x": 1}

    play(scene)
    assert (
        "the number of acquisitions (3) of lock 'x' cannot be stored: permission denied"
        in caplog.text
    )


@pytest.mark.parametrize("error", [TooBusy("busy"), ConnectFailed("the server restarts")])
def test_a_call_that_was_not_executed_costs_no_count_at_close(error: LeaseholdError) -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 7, count=True)
        a.engine.trouble_with("txn", 1, error)
        await a.close()
        assert (await b.count_acquisitions("x")).counts == {"x": 7}

    play(scene)


def test_lost_answers_at_close_cost_no_count() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        await use(a, "x", 7, count=True)
        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        a.engine.trouble_with("txn", 2, Fault.REQUEST_LOST)
        a.engine.trouble_with("txn", 3, TooBusy("busy"))
        await a.close()
        assert (await b.count_acquisitions("x")).counts == {"x": 7}

    play(scene)


def test_a_count_that_is_given_up_at_close_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        await use(a, "x", 7, count=True)
        a.engine.is_cut_off = True
        await a.close()
        await world.until(lambda: not world.leases())

    play(scene)
    assert "the 7 acquisitions of 'x' may not be stored" in caplog.text


def test_a_close_stores_a_bounded_number_of_counts_at_a_time() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        names = [f"x{number}" for number in range(200)]
        for name in names:
            await use(a, name, count=True)
        a.engine.delay_s = 0.1
        running = most = 0
        txn = a.engine.txn

        async def counted(*args: object) -> TxnResult:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await txn(*args)  # type: ignore[arg-type]
            finally:
                running -= 1

        a.engine.txn = counted  # type: ignore[method-assign, assignment]
        await a.close()
        assert 1 < most <= 64
        counted_now = await b.count_acquisitions(*names)
        assert counted_now.counts == dict.fromkeys(names, 1)

    play(scene)


def test_keys_of_other_locks_do_not_hide_the_next_in_the_queue() -> None:
    async def scene(world: World) -> None:
        a, b, c, d, reader = (world.client(name) for name in "abcdr")
        await use(a, "a", 5)
        guard = await a.lock("a").acquire()
        leaving = asyncio.ensure_future(b.lock("a").acquire())
        await world.in_line("a", 2)
        others = [await d.lock(f"a/b{number}").acquire() for number in range(16)]
        waiting = asyncio.ensure_future(c.lock("a").acquire())
        await world.in_line("a", 3)
        a.engine.delay_s = 0.4
        guard.release()
        await asyncio.sleep(0.01)
        leaving.cancel()
        theirs = await waiting
        a.engine.delay_s = 0.0
        assert (await reader.count_acquisitions("a")).counts == {"a": 7}
        for each in (theirs, *others):
            each.release()

    play(scene)


def test_a_value_that_cannot_be_encoded_is_reported_beside_the_others() -> None:
    async def scene(world: World) -> None:
        a, reader = world.client("a"), world.client("r")
        await use(a, "jobs/1", 2)
        lease = (await world.engine.grant(60)).id
        await world.engine.put(b"jobs/bad/%x" % lease, rb'{"who":"\ud800"}', lease=lease)
        counted = await reader.count_acquisitions(prefix="jobs/")
        assert counted.counts == {"jobs/1": 2}
        assert counted.not_reached["jobs/bad"].why == "its holder does not count acquisitions"
        await world.engine.revoke(lease)

    play(scene)


def test_after_an_error_that_concerns_all_no_more_is_counted() -> None:
    async def scene(world: World) -> None:
        a, reader = world.client("a"), world.client("r")
        names = [f"x{number}" for number in range(200)]
        for name in names:
            await use(a, name)
        reader.engine.trouble_with("txn", 1, Closed("the engine was closed"))
        with pytest.raises(Closed):
            await reader.count_acquisitions(*names)
        calls = len(reader.engine.calls)
        await asyncio.sleep(5)
        assert len(reader.engine.calls) == calls

    play(scene)


def test_names_below_a_prefix_are_found_without_their_values() -> None:
    async def scene(world: World) -> None:
        a, reader = world.client("a"), world.client("r")
        await use(a, "office/desk")
        steps: list[Range] = []
        txn = reader.engine.txn

        async def recorded(compares: object, success: list[object], *rest: object) -> TxnResult:
            steps.extend(step for step in success if isinstance(step, Range))
            return await txn(compares, success, *rest)  # type: ignore[arg-type]

        reader.engine.txn = recorded  # type: ignore[method-assign, assignment]
        assert (await reader.count_acquisitions(prefix="office/")).counts == {"office/desk": 1}
        search = [step for step in steps if step.key in (b"office/", counter_key(b"office/"))]
        assert [step.keys_only for step in search] == [True, True]
        assert "range" not in reader.engine.calls
        assert range_request(search[0]).keys_only

    play(scene)


@pytest.mark.parametrize("is_block", [False, True])
def test_a_caller_that_is_cancelled_while_the_loop_has_its_turn_is_not_counted(
    *, is_block: bool
) -> None:
    async def scene(world: World) -> None:
        a, reader = world.client("a"), world.client("r")
        lock = a.lock("x")
        await use(a, "x", BREATHE - 1)

        async def work() -> None:
            if is_block:
                async with lock:
                    pytest.fail("it is cancelled before")
            (await lock.acquire()).release()

        working = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        assert (await reader.count_acquisitions("x")).counts == {"x": BREATHE - 1}

    play(scene)


def test_a_nested_guard_that_is_not_received_leaves_the_count() -> None:
    async def scene(world: World) -> None:
        a, reader = world.client("a"), world.client("r")
        lock = a.lock("x", reentrant=True)
        await use(a, "x", BREATHE - 1)

        async def work() -> None:
            async with lock as guard:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await lock.acquire()
                guard.check()

        await asyncio.create_task(work())
        assert (await reader.count_acquisitions("x")).counts == {"x": BREATHE}

    play(scene)


def test_a_name_with_a_no_break_space_is_counted_after_a_hand_over() -> None:
    async def scene(world: World) -> None:
        a, b, reader = world.client("a"), world.client("B\u00fcro\u00a01"), world.client("r")
        await use(a, "x", 3)
        await use(b, "x", 2)
        assert (await reader.count_acquisitions("x")).counts == {"x": 5}

    play(scene)


def test_the_value_of_a_candidate_is_not_changed_by_a_hand_over() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        guard = await a.lock("x").acquire()
        value = b'{"who":"b","port":8080}'
        candidate = asyncio.ensure_future(b.election("x").campaign(value))
        await world.in_line("x", 2)
        guard.release()
        leadership = await candidate
        leader = await a.election("x").leader()
        assert leader is not None
        assert leader.value == value
        leadership.release()

    play(scene)


def test_a_counter_stays_at_the_highest_number() -> None:
    async def scene(world: World) -> None:
        a, reader = world.client("a"), world.client("r")
        await world.engine.put(counter_key(b"x"), b"9999999999999999999")
        await use(a, "x", count=True)
        await a.close()
        assert (await reader.count_acquisitions("x")).counts == {"x": MAX_NUMBER}

    play(scene)
