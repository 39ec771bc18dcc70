"""Fixtures for the tests of programs that use Leasehold. pytest finds them by itself.

`leasehold_server` is a real server, `leasehold_client` a client for plain tests, and
`leasehold_async_client` one for tests that are coroutines. `-p no:leasehold` does without.

Nothing of the library is imported until a test asks for a fixture: pytest imports this module in
every run, of every project that has Leasehold installed. PYTEST_DONT_REWRITE
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import leasehold
    import leasehold.sync
    from leasehold.pending import Pending
    from leasehold.testing import LocalServer

VARIABLE: Final = "LEASEHOLD_ENDPOINTS"
"""`leasehold.client.connecting.VARIABLE`, which is not imported here."""


@pytest.fixture
def leasehold_server(monkeypatch: pytest.MonkeyPatch) -> "Iterator[LocalServer]":
    """A real Leasehold server of this test alone: no keys, no leases, a free port of 127.0.0.1.

    `endpoint` is its address. LEASEHOLD_ENDPOINTS names it while the test runs, so that
    `leasehold.connect()` in the program under test finds it. `stop`, `start`, `outage`, `frozen`,
    `hang_up` and `wipe` make it go away, in one way or another; `disconnect` and `reconnect` are
    about one client.
    """
    from leasehold.testing.local_server import LocalServer  # noqa: PLC0415  it is long

    with LocalServer() as server:
        monkeypatch.setenv(VARIABLE, server.endpoint)
        yield server


@pytest.fixture
def leasehold_client(leasehold_server: "LocalServer") -> "Iterator[leasehold.sync.Client]":
    """A client of `leasehold_server`, for plain test functions: its calls block.

    Its leases are ended when the test is over.
    """
    from leasehold import sync  # noqa: PLC0415  it is long

    with leasehold_server.wire() as wire, sync.connect(wire.endpoint) as client:
        yield client
        wire.mend()  # if it is cut off it could end nothing


@pytest.fixture
def leasehold_async_client(leasehold_server: "LocalServer") -> "Pending[leasehold.Client]":
    """A client of `leasehold_server`, for coroutines: to be entered, in the test's own loop.

    async def test_it(leasehold_async_client):
        async with leasehold_async_client as client:
            ...

    It needs no plugin for asyncio, and works with any. `leasehold_server.connect()` gives more.
    """
    return leasehold_server.connect()
