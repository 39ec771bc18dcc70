"""`Discovery`: finds registrars by group and by locator, and reports them to listeners.

The rules are in `state`. This module makes the calls that it asks for, passes announcements to it,
and events to listeners. The network is behind `DiscoveryNetwork`, which tests simulate.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, Protocol, Self, TypeAlias

from leasehold.basics.addresses import is_local, parse_address
from leasehold.basics.callbacks import check_plain_callback
from leasehold.basics.durations import NEVER
from leasehold.basics.event_loop import OwnerLoop
from leasehold.discovery.announced import Announcement, Registrar
from leasehold.discovery.locators import (
    Locator,
    LocatorLike,
    groups_of,
    locators_of,
    names_of,
)
from leasehold.discovery.state import (
    NO_GROUPS,
    Call,
    DiscoveryEvent,
    DiscoveryState,
    EventKind,
    Groups,
)
from leasehold.errors import UnsupportedOperation
from leasehold.grpc.channel import Channel
from leasehold.wire import registry_pb2 as pb

logger = logging.getLogger(__name__)

CALL_S: Final = 5.0
"""How long a registrar may take to answer."""

JITTER: Final = 0.2
"""The largest part of a wait for a retry that is left out, at random."""

_DESCRIBE: Final = "/leasehold.v1.Registry/Describe"

Listener: TypeAlias = Callable[[DiscoveryEvent], object]


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
        self._browser: _Browser | None = None

    async def describe(self, endpoint: str) -> Registrar:
        """Call the registrar at an endpoint; with a TLS context always over TLS."""
        async with Channel(endpoint, tls=self._tls, keepalive=None) as channel:
            request = pb.DescribeRequest().SerializeToString()
            answer = await channel.unary(_DESCRIBE, request, timeout=CALL_S, idempotent=True)
            (address,) = channel.dial_addresses
        info = pb.RegistrarInfo.FromString(answer)
        return Registrar(
            info.id,
            frozenset(info.groups),
            info.groups_number,
            _endpoints(_with_scheme(address), info.endpoints),
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


def _endpoints(answered: str, others: Iterable[str]) -> tuple[str, ...]:
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


class _Browser(Protocol):
    """`announcements.Browser`, which cannot be imported without `zeroconf`."""

    async def close(self) -> None: ...


class Discovery:
    """Finds registrars of groups and at locators, until it is closed.

        async with Discovery(groups=["payments"], locators=["leasehold://10.0.0.1"]) as discovery:
            discovery.add_listener(print)

    `groups` are names of groups, `ALL_GROUPS` or `NO_GROUPS`; the public group is "". `locators`
    are `Locator`s, or texts such as `leasehold://HOST:PORT`. With a TLS context, such as
    `client_tls(ca)`, every registrar is called over TLS.

    It is made in a running event loop, and begins immediately. After `close`, every call raises
    RuntimeError, and no event is reported.
    """

    def __init__(
        self,
        groups: Iterable[str] | None = NO_GROUPS,
        locators: Iterable[LocatorLike] | None = (),
        *,
        tls: ssl.SSLContext | None = None,
        network: DiscoveryNetwork | None = None,
    ) -> None:
        wanted, places = groups_of(groups), locators_of(() if locators is None else locators)
        self._loop = asyncio.get_running_loop()
        self._owner = OwnerLoop("discovery")
        self._network = RealNetwork(tls) if network is None else network
        random = Random()  # noqa: S311  spreads retries
        self._state: DiscoveryState[Locator] = DiscoveryState(
            lambda wait_s: wait_s * random.uniform(1.0 - JITTER, 1.0)
        )
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: dict[Listener, bool] = {}
        """For each, whether it asked for changed events."""
        self._undelivered: deque[tuple[Listener, DiscoveryEvent]] = deque()
        self._is_delivering = self._is_browsing = self._is_closed = False
        self._want_groups(wanted)
        self._want_locators(places)

    # Results.

    def registrars(self) -> list[Registrar]:
        """Return the registrars that are found, as a new list."""
        self._check()
        return self._state.registrars

    def groups(self) -> list[str] | None:
        """Return the wanted groups as a new list, sorted; None for all groups."""
        self._check()
        groups = self._state.groups
        return None if groups is None else sorted(groups)

    def locators(self) -> list[Locator]:
        """Return the wanted locators as a new list."""
        self._check()
        return list(self._state.locators)

    def discovered_locators(self) -> list[Locator]:
        """Return the wanted locators at which a registrar was found."""
        self._check()
        return [locator for locator, found in self._state.locators.items() if found]

    def undiscovered_locators(self) -> list[Locator]:
        """Return the wanted locators at which a registrar is still looked for."""
        self._check()
        return [locator for locator, found in self._state.locators.items() if not found]

    def locator_errors(self) -> dict[Locator, Exception]:
        """Return the last error at each wanted locator whose last call has failed."""
        self._check()
        return self._state.locator_errors

    # Wanted groups and locators.

    def add_groups(self, groups: Iterable[str]) -> None:
        """Add wanted groups. Raises `UnsupportedOperation` if all groups are wanted."""
        self._check()
        self._want_groups(names_of(groups) | self._named_groups("added to"))

    def set_groups(self, groups: Iterable[str] | None) -> None:
        """Replace the wanted groups; None for all, empty for none."""
        self._check()
        self._want_groups(groups_of(groups))

    def remove_groups(self, groups: Iterable[str]) -> None:
        """Remove wanted groups. Raises `UnsupportedOperation` if all groups are wanted."""
        self._check()
        names = names_of(groups)
        self._want_groups(self._named_groups("removed from") - names)

    def add_locators(self, locators: Iterable[LocatorLike]) -> None:
        """Add wanted locators. One that is wanted without TLS is replaced by one with TLS."""
        self._check()
        self._want_locators(locators_of((*self._state.locators, *locators_of(locators))))

    def set_locators(self, locators: Iterable[LocatorLike]) -> None:
        """Replace the wanted locators."""
        self._check()
        self._want_locators(locators_of(locators))

    def remove_locators(self, locators: Iterable[LocatorLike]) -> None:
        """Remove wanted locators."""
        self._check()
        removed = set(locators_of(locators))
        self._want_locators(each for each in self._state.locators if each not in removed)

    def discard(self, registrar: Registrar | None) -> None:
        """Drop a registrar that does not work; it is looked for again after a wait.

        None, and a registrar that is not found, are ignored.
        """
        self._check()
        if registrar is not None:
            self._state.discard(registrar.id, self._loop.time())
            self._advance()

    def _named_groups(self, operation: str) -> frozenset[str]:
        groups = self._state.groups
        if groups is None:
            raise UnsupportedOperation(
                f"groups cannot be {operation} all groups: name the wanted ones with set_groups"
            )
        return groups

    def _want_groups(self, groups: Groups) -> None:
        if groups != NO_GROUPS and not self._is_browsing:
            self._network.browse(self._announced, self._withdrawn)
            self._is_browsing = True
        self._state.set_groups(groups, self._loop.time())
        self._advance()

    def _want_locators(self, locators: Iterable[Locator]) -> None:
        wanted = {locator: locator.endpoint for locator in locators}
        self._state.set_locators(wanted, self._loop.time())
        self._advance()

    # Listeners.

    def add_listener(self, listener: Listener, *, changes: bool = False) -> None:
        """Call `listener` with each event, and now with one for everything already found.

        It is a plain function, called in the event loop. With `changes` it is also called when
        registrars that were found by group have changed their groups.
        """
        self._check()
        if listener is None:
            raise TypeError("listener must be a function, not None")
        check_plain_callback(listener, "listener")
        is_new = listener not in self._listeners
        self._listeners[listener] = changes
        if is_new and (found := self._state.registrars):
            self._undelivered.append((listener, DiscoveryEvent(EventKind.DISCOVERED, tuple(found))))
            self._deliver()

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener; one that was not added is ignored."""
        self._check()
        self._listeners.pop(listener, None)

    def _deliver(self) -> None:
        """Call listeners in order, also if one of them makes another change."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._undelivered:
                listener, event = self._undelivered.popleft()
                if listener not in self._listeners:
                    continue
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener of discovery has failed: %r", listener)
        finally:
            self._is_delivering = False

    # Running.

    def _announced(self, announcement: Announcement) -> None:
        if not self._is_closed:
            self._state.announced(announcement, self._loop.time())
            self._advance()

    def _withdrawn(self, server: str) -> None:
        if not self._is_closed:
            self._state.withdrawn(server, self._loop.time())
            self._advance()

    def _advance(self) -> None:
        """Make the calls that are due, set the timer, and deliver events."""
        for call in self._state.due(self._loop.time()):
            task = self._loop.create_task(self._call(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at := self._state.next_at) != NEVER:
            self._timer = self._loop.call_at(at, self._advance)
        for event in self._state.take_events():
            self._undelivered.extend(
                (listener, event)
                for listener, wants_changes in self._listeners.items()
                if wants_changes or event.kind is not EventKind.CHANGED
            )
        self._deliver()

    async def _call(self, call: Call) -> None:
        answer = await self._first_answer(call)
        if isinstance(answer, Registrar):
            self._state.answered(call, answer, self._loop.time())
        else:
            self._state.failed(call, self._loop.time(), answer)
        self._advance()

    async def _first_answer(self, call: Call) -> Registrar | Exception:
        """Call all endpoints, and return the first answer of the right registrar, or an error."""
        tasks = {self._loop.create_task(self._describe(each)) for each in call.endpoints}
        error: Exception = ValueError("another registrar has answered")
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
        return registrar if registrar.id else ValueError(f"{endpoint} is not a registrar")

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError("this discovery was closed")
        self._owner.check()

    async def close(self) -> None:
        """End discovery. Listeners receive no further events, and none about its end."""
        if self._is_closed:
            return
        self._owner.check()
        self._is_closed = True
        self._listeners.clear()
        self._undelivered.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._network.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()
