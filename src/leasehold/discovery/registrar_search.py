"""`RegistrarSearch`: runs the state of discovery on the network.

The rules are in `state`. This module makes the calls that it asks for, passes announcements to it,
and sets its timer. The network is behind `DiscoveryNetwork`, which tests simulate.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from leasehold.basics.addresses import is_local, parse_address
from leasehold.basics.durations import NEVER
from leasehold.discovery.announced import MAX_ENDPOINTS, Announcement, Registrar
from leasehold.discovery.locators import Locator
from leasehold.discovery.searches import Call
from leasehold.discovery.state import NO_GROUPS, DiscoveryState, Groups
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_connection import CLIENT_LIMITS
from leasehold.wire import registry_pb2 as pb

if TYPE_CHECKING:  # it needs `zeroconf`, an extra
    from leasehold.discovery.announcements import Browser

logger = logging.getLogger(__name__)

CALL_S: Final = 5.0
"""How long a registrar may take to answer."""

MAX_ANSWER_BYTES: Final = 256 * 1024
"""The largest description of a registrar, with its groups and endpoints."""

MAX_ID_CHARS: Final = 256
"""Characters in the id of a registrar, and of its cluster."""

JITTER: Final = 0.2
"""The largest part of a wait for a retry that is left out, at random."""

_DESCRIBE: Final = "/leasehold.v1.Registry/Describe"


class DiscoveryNetwork(Protocol):
    """The network, as discovery uses it. Implemented by `RealNetwork` and by simulations."""

    async def describe(self, endpoint: str) -> Registrar:
        """Return the registrar that answers at an endpoint; raise an error if none does."""
        ...

    def browse(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        """Begin to pass announcements, and the names of servers that have sent a goodbye."""
        ...

    async def close(self) -> None:
        """Stop passing announcements."""
        ...


class RealNetwork:
    """Calls over gRPC, and announcements by multicast DNS, which needs the package `zeroconf`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._browser: Browser | None = None

    async def describe(self, endpoint: str) -> Registrar:
        """Call the registrar at an endpoint; with a TLS context always over TLS."""
        limits = replace(CLIENT_LIMITS, max_message_bytes=MAX_ANSWER_BYTES)
        async with Channel(endpoint, tls=self._tls, keepalive=None, limits=limits) as channel:
            request = pb.DescribeRequest().SerializeToString()
            answer = await channel.unary(_DESCRIBE, request, timeout=CALL_S, idempotent=True)
            (address,) = channel.dial_addresses
        info = pb.RegistrarInfo.FromString(answer)
        if len(info.id) > MAX_ID_CHARS or len(info.cluster) > MAX_ID_CHARS:
            raise ValueError(
                f"ids of a registrar and its cluster must have at most {MAX_ID_CHARS} characters, "
                f"got {len(info.id):,} and {len(info.cluster):,}"
            )
        return Registrar(
            info.id,
            frozenset(info.groups),
            info.groups_number,
            usable_endpoints(_with_scheme(address), info.endpoints[:MAX_ENDPOINTS]),
            info.cluster,
        )

    def browse(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        """Listen on all interfaces. Raises ImportError without `zeroconf`."""
        try:
            from leasehold.discovery.announcements import Browser  # noqa: PLC0415  it is optional
        except ImportError as error:
            raise ImportError(
                "discovery of groups requires the package zeroconf: install leasehold[discovery]"
            ) from error
        self._browser = Browser(announced, withdrawn)

    async def close(self) -> None:
        """Leave the network."""
        if self._browser is not None:
            await self._browser.close()


def usable_endpoints(answered: str, others: Iterable[str]) -> tuple[str, ...]:
    """Return the endpoints that may be used from here, the one that has answered first.

    An address of loopback that another machine has sent is one of this machine.
    """
    first, found = parse_address(answered), {answered: None}
    for endpoint in others:
        try:
            address = parse_address(endpoint)
        except ValueError:
            continue
        if address.is_tls == first.is_tls and (is_local(first) or not is_local(address)):
            found[endpoint] = None
    return tuple(found)


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"http://{address}"


class RegistrarSearch:
    """Searches for registrars of groups and at locators, until it is closed.

    It is made in a running event loop. `advanced` is called after each step, when the state may
    have changed.
    """

    def __init__(self, network: DiscoveryNetwork, advanced: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._network = network
        self._advanced = advanced
        random = Random()  # noqa: S311  spreads retries
        self.state: DiscoveryState[Locator] = DiscoveryState(
            lambda wait_s: wait_s * random.uniform(1.0 - JITTER, 1.0)
        )
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_browsing = self._is_closed = False

    def begin_browsing(self) -> None:
        """Begin to receive announcements, if that was not done. ImportError without `zeroconf`."""
        if not self._is_browsing:
            self._network.browse(self._announced, self._withdrawn)
            self._is_browsing = True

    def want_groups(self, groups: Groups) -> None:
        """Replace the wanted groups."""
        if groups != NO_GROUPS:
            self.begin_browsing()
        self.state.set_groups(groups, self._loop.time())
        self.advance()

    def want_locators(self, locators: Iterable[Locator]) -> None:
        """Replace the wanted locators."""
        wanted = {locator: locator.endpoint for locator in locators}
        self.state.set_locators(wanted, self._loop.time())
        self.advance()

    def discard(self, registrar: str) -> None:
        """Drop a registrar that does not work."""
        self.state.discard(registrar, self._loop.time())
        self.advance()

    def _announced(self, announcement: Announcement) -> None:
        if not self._is_closed:
            self.state.announced(announcement, self._loop.time())
            self.advance()

    def _withdrawn(self, server: str) -> None:
        if not self._is_closed:
            self.state.withdrawn(server, self._loop.time())
            self.advance()

    def advance(self) -> None:
        """Make the calls that are due, and set the timer; after each change of the state."""
        if self._is_closed:
            return
        for call in self.state.due(self._loop.time()):
            task = self._loop.create_task(self._call(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self.state.next_at) != NEVER:
            self._timer = self._loop.call_at(at, self.advance)
        self._advanced()

    async def _call(self, call: Call) -> None:
        answer = await self._first_answer(call)
        if isinstance(answer, Registrar):
            self.state.answered(call, answer, self._loop.time())
        else:
            self.state.failed(call, self._loop.time(), answer)
        self.advance()

    async def _first_answer(self, call: Call) -> Registrar | Exception:
        """Call all endpoints, and return the first answer of the right registrar, or an error."""
        tasks = {self._loop.create_task(self._describe(each)) for each in call.endpoints}
        error: Exception = ValueError(f"the answer is not from registrar {call.registrar}")
        try:
            async with asyncio.timeout(CALL_S):
                for answer in asyncio.as_completed(tasks):
                    found = await answer
                    if isinstance(found, Exception):
                        error = found
                    elif call.registrar in ("", found.id):
                        return found
        except TimeoutError:
            return TimeoutError(f"no answer within {CALL_S:g} s")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return error

    async def _describe(self, endpoint: str) -> Registrar | Exception:
        try:
            registrar = await self._network.describe(endpoint)
        except Exception as error:  # noqa: BLE001  another host can send anything
            logger.debug("no registrar answers at %s: %r", endpoint, error)
            return error
        return (
            registrar
            if registrar.id
            else ValueError(f"{endpoint} has answered without the id of a registrar")
        )

    async def close(self) -> None:
        """End all calls, and leave the network. The state does not change any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._network.close()
