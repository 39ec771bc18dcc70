"""Fixtures for the tests of programs that use Leasehold. pytest loads them automatically.

`leasehold_server` is a real server, `leasehold_client` a client for plain tests, and
`leasehold_async_client` one for tests that are coroutines. `-p no:leasehold` disables them.

Nothing of the library is imported until a test uses a fixture: pytest imports this module in every
run, of every project that has Leasehold installed. PYTEST_DONT_REWRITE
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import leasehold
    import leasehold.sync
    from leasehold.basics.pending import Pending
    from leasehold.testing import LocalServer

VARIABLE: Final = "LEASEHOLD_ENDPOINTS"
"""`leasehold.client.connecting.VARIABLE`, which is not imported here."""


@pytest.fixture
def leasehold_server(monkeypatch: pytest.MonkeyPatch) -> "Iterator[LocalServer]":
    """A real Leasehold server for this test alone: no keys, no leases, a free port of 127.0.0.1.

    `endpoint` is its address. LEASEHOLD_ENDPOINTS is set to it while the test runs, so that
    `leasehold.connect()` in the program under test finds it. `stop`, `start`, `outage`, `frozen`,
    `hang_up` and `wipe` simulate failures of the server; `disconnect` and `reconnect` affect one
    client.
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
        wire.mend()  # without a connection it could not end its leases


@pytest.fixture
def leasehold_async_client(leasehold_server: "LocalServer") -> "Pending[leasehold.Client]":
    """A client of `leasehold_server`, for coroutines: to be entered, in the test's own loop.

        async def test_it(leasehold_async_client):
            async with leasehold_async_client as client:
                ...

    It needs no plugin for asyncio, and works with any. `leasehold_server.connect()` returns more
    clients.
    """
    return leasehold_server.connect()
