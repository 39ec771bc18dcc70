"""Where a client connects to, and what it says if nobody is there."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold
from leasehold import ConnectFailed, sync
from leasehold.client.connecting import DEFAULT_ENDPOINT, VARIABLE, endpoints_of
from leasehold.testing.local_server import LocalServer


@pytest.mark.parametrize(
    ("given", "named", "expected"),
    [
        ("a:1", "b:2", ["a:1"]),
        ("a:1,b:2", "", ["a:1", "b:2"]),
        ("a:1, b:2", "", ["a:1", "b:2"]),
        (["a:1", "b:2"], "", ["a:1", "b:2"]),
        (None, "a:1", ["a:1"]),
        (None, " a:1 , b:2, ", ["a:1", "b:2"]),
        (None, "", [DEFAULT_ENDPOINT]),
        (None, " , ", [DEFAULT_ENDPOINT]),
    ],
)
def test_what_is_given_comes_before_the_environment_and_that_before_the_default(
    given: Any, named: str, expected: list[str]
) -> None:
    assert endpoints_of(given, {VARIABLE: named}) == expected


def test_an_environment_without_the_variable_has_the_default() -> None:
    assert endpoints_of(None, {}) == [DEFAULT_ENDPOINT]


@pytest.mark.parametrize("wrong", ["", "a:1,", "nowhere:port", ":0:0", 5, [], [5]])
def test_what_is_no_address_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        leasehold.connect(wrong)


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), None, "1"])
def test_a_timeout_that_is_none_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout"):
        leasehold.connect("127.0.0.1:1", timeout=wrong)
    with pytest.raises((TypeError, ValueError), match="timeout"):
        leasehold.open("memory:", timeout=wrong)


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who lets everybody in, and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_nobody_there_is_said_at_once_and_by_whom() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"

        async def main() -> None:
            with pytest.raises(ConnectFailed, match=endpoint):
                await leasehold.connect(endpoint)

        asyncio.run(main())


def test_somebody_who_says_nothing_is_a_timeout(silent: str) -> None:
    async def main() -> None:
        why = rf"no answer within 0\.3 s: {silent} accepts connections but sends nothing"
        with pytest.raises(TimeoutError, match=why):
            await leasehold.connect(silent, timeout=0.3)

    asyncio.run(main())


def test_of_several_the_first_that_answers_is_taken(silent: str) -> None:
    with LocalServer() as server:

        async def main() -> None:
            async with leasehold.connect([silent, server.endpoint]) as client:
                await client.kv.put("a", "1")

        asyncio.run(main())


def test_what_was_made_can_be_made_again_but_not_entered_twice() -> None:
    with LocalServer() as server:

        async def main() -> None:
            pending = leasehold.connect(server.endpoint)
            for value in ("1", "2"):
                client = await pending
                await client.kv.put("a", value)
                await client.close()
            async with pending:
                with pytest.raises(RuntimeError, match="already entered"):
                    await pending.__aenter__()

        asyncio.run(main())


def test_a_connection_that_is_given_up_leaves_nothing(silent: str) -> None:
    async def main() -> None:
        connecting = asyncio.ensure_future(_connect(silent))
        await asyncio.sleep(0.05)
        connecting.cancel()
        await asyncio.wait([connecting])
        assert connecting.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


async def _connect(endpoint: str) -> leasehold.Client:
    return await leasehold.connect(endpoint)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", 'path is empty; use "." for the current directory'),
        ("Memory:", "write 'memory:' for an in-memory store, or './Memory:' for a dir"),
        (" memory: ", "write 'memory:' for an in-memory store"),
    ],
)
@pytest.mark.parametrize("opened", [leasehold.open, leasehold.open_engine, sync.open])
def test_a_path_that_is_probably_a_mistake_is_refused(
    opened: Callable[[str], object], path: str, said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        opened(path)
