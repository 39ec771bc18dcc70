"""A network for discovery in virtual time: registrars at endpoints, and announcements."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from leasehold.discovery.announced import Announcement, Registrar
from leasehold.errors import ConnectFailed
from leasehold.testing import run_virtual

Test = Callable[..., Coroutine[Any, Any, None]]


def virtually(test: Test) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(lambda: test(*args, **kwargs))

    return run


class FakeNetwork:
    """Registrars at endpoints, and announcements that tests make."""

    def __init__(self) -> None:
        self.at: dict[str, Registrar] = {}
        self.hanging: set[str] = set()
        self.called: list[str] = []
        self.browsed = 0
        self.is_closed = False

    async def describe(self, endpoint: str) -> Registrar:
        self.called.append(endpoint)
        await asyncio.sleep(0.01)
        if endpoint in self.hanging:
            await asyncio.Event().wait()
        if endpoint not in self.at:
            raise ConnectFailed(f"cannot connect to {endpoint}")
        return self.at[endpoint]

    def browse(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        self.browsed += 1
        self.announced, self.withdrawn = announced, withdrawn

    async def close(self) -> None:
        self.is_closed = True

    def serve(self, name: str, *endpoints: str, groups: str = "a", number: int = 1) -> Registrar:
        registrar = Registrar(name, frozenset(groups.split()), number, endpoints)
        self.at.update(dict.fromkeys(endpoints, registrar))
        return registrar

    def announce(self, name: str, *endpoints: str, number: int = 1) -> None:
        self.announced(Announcement(endpoints[0], name, endpoints, number, 120.0))
