"""`leasehold.sync.Discovery`: its listeners run in a thread, and do not delay the loop."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.discovery.announced import Announcement, Registrar
from leasehold.discovery.discovery import Discovery as AsyncDiscovery
from leasehold.discovery.state import DiscoveryEvent
from leasehold.registry.state import Item, ServiceType
from leasehold.sync import Discovery, Join
from leasehold.sync.discovery import DiscoveryBase
from tests.support.interrupts import Interruption
from tests.support.scripts import until

DEADLINE_S = 30.0
FIRST, SECOND = "leasehold://a:1", "leasehold://b:2"


class Network:
    """A registrar answers at every locator; its id is the endpoint."""

    async def describe(self, endpoint: str) -> Registrar:
        return Registrar(endpoint, frozenset(), 1, (endpoint,))

    def browse(
        self, announced: Callable[[Announcement], None], withdrawn: Callable[[str], None]
    ) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Listener:
    """Records events, each time in which thread; waits until it may continue."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.threads: set[threading.Thread] = set()
        self.was_called = threading.Event()
        self.may_continue = threading.Event()

    def __call__(self, event: DiscoveryEvent) -> None:
        self.threads.add(threading.current_thread())
        self.events.append((event.kind.value, len(event.registrars)))
        self.was_called.set()
        assert self.may_continue.wait(DEADLINE_S)


@pytest.fixture(name="discovery")
def make_discovery() -> Iterator[Any]:
    """Return one without the network; it has the methods that are by hand, and `on_loop`."""
    discovery = Discovery.__new__(Discovery)
    DiscoveryBase.__init__(discovery, lambda: AsyncDiscovery(locators=[FIRST], network=Network()))
    with discovery:
        yield discovery


def settle(discovery: Discovery) -> None:
    """Wait until the calls of listeners that were queued before have ended."""
    done = threading.Event()
    discovery.add_listener(lambda _: done.set())
    assert done.wait(DEADLINE_S)


def until_found(discovery: Discovery) -> None:
    settle(discovery)
    assert discovery.registrars()


def test_a_listener_that_blocks_delays_no_call(discovery: Discovery) -> None:
    listener = Listener()
    discovery.add_listener(listener)
    assert listener.was_called.wait(DEADLINE_S)
    discovery.add_locators([SECOND])
    assert len(discovery.locators()) == 2
    until(lambda: len(discovery.registrars()) == 2)
    assert listener.events == [("discovered", 1)]
    listener.may_continue.set()
    settle(discovery)
    assert listener.events == [("discovered", 1), ("discovered", 1)]


def test_listeners_are_called_in_a_thread_in_which_calls_are_allowed(discovery: Discovery) -> None:
    found: list[object] = []
    discovery.add_listener(lambda _: found.append(discovery.registrars()))
    settle(discovery)
    assert found == [discovery.registrars()]


def test_a_listener_that_raises_stops_no_other(
    discovery: Discovery, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: DiscoveryEvent) -> None:
        raise ValueError("planned")

    discovery.add_listener(fail)
    with caplog.at_level(logging.ERROR):
        settle(discovery)
    assert "planned" in caplog.text


def test_a_listener_that_was_added_twice_is_called_once(discovery: Discovery) -> None:
    until_found(discovery)
    listener = Listener()
    listener.may_continue.set()
    discovery.add_listener(listener)
    discovery.add_listener(listener, changes=True)
    settle(discovery)
    assert listener.events == [("discovered", 1)]


def test_a_removed_listener_receives_no_event_that_waits(discovery: Discovery) -> None:
    until_found(discovery)
    busy, removed = Listener(), Listener()
    removed.may_continue.set()
    discovery.add_listener(busy)
    discovery.add_listener(removed)
    discovery.remove_listener(removed)
    busy.may_continue.set()
    settle(discovery)
    assert removed.events == []


def test_a_listener_that_is_added_again_receives_only_the_events_since(
    discovery: Discovery,
) -> None:
    until_found(discovery)
    busy, listener = Listener(), Listener()
    listener.may_continue.set()
    discovery.add_listener(busy)
    discovery.add_listener(listener)
    discovery.remove_listener(listener)
    discovery.add_listener(listener)
    busy.may_continue.set()
    settle(discovery)
    assert listener.events == [("discovered", 1)]


def test_removing_an_unknown_listener_is_ignored(discovery: Discovery) -> None:
    discovery.remove_listener(print)


def test_nothing_is_reported_after_close(discovery: Discovery) -> None:
    until_found(discovery)
    busy, late = Listener(), Listener()
    discovery.add_listener(busy)
    assert busy.was_called.wait(DEADLINE_S)
    discovery.add_listener(late)
    discovery.close()
    busy.may_continue.set()
    done = threading.Event()
    discovery._calls.submit(done.set)
    assert done.wait(DEADLINE_S)
    assert late.events == []


@pytest.mark.parametrize(
    "call",
    [
        Discovery.registrars,
        Discovery.groups,
        Discovery.locators,
        lambda discovery: discovery.add_listener(print),
        lambda discovery: discovery.remove_listener(print),
    ],
)
def test_after_close_every_call_raises_runtime_error(
    discovery: Discovery, call: Callable[[Discovery], object]
) -> None:
    discovery.close()
    discovery.close()
    with pytest.raises(RuntimeError, match="the Discovery was closed"):
        call(discovery)


async def never_awaited(_: DiscoveryEvent) -> None: ...


@pytest.mark.parametrize("listener", [None, never_awaited, "text"])
def test_only_plain_functions_are_listeners(discovery: Discovery, listener: Any) -> None:
    with pytest.raises(TypeError, match="listener must be"):
        discovery.add_listener(listener)


def test_a_join_takes_a_blocking_discovery_and_does_not_close_it(discovery: Discovery) -> None:
    item = Item("", (ServiceType("printer"),))
    with Join(item, discovery=discovery) as join:
        assert join.discovery is discovery
    with pytest.raises(RuntimeError, match="the Join was closed"):
        join.registrars()
    assert discovery.registrars() is not None


def test_a_join_refuses_an_async_discovery(discovery: Discovery) -> None:
    item = Item("", (ServiceType("printer"),))
    with pytest.raises(TypeError, match=r"discovery must be a leasehold\.sync\.Discovery"):
        Join(item, discovery=discovery.on_loop)  # type: ignore[arg-type]


def test_a_join_closes_its_own_discovery() -> None:
    with Join(Item("", (ServiceType("printer"),))) as join:
        assert join.discovery.locators() == []
    with pytest.raises(RuntimeError, match="the Discovery was closed"):
        join.discovery.locators()


def test_the_id_of_a_service_is_reported_once_in_a_thread_that_may_call_the_join() -> None:
    reported: list[tuple[str, threading.Thread]] = []
    done = threading.Event()

    def on_id(item_id: str) -> None:
        reported.append((item_id, threading.current_thread()))
        done.set()

    given = "5b0e4f3c-9d0f-4d0a-8a51-111111111111"
    with Join(Item(given, (ServiceType("printer"),)), on_id=on_id) as join:
        assert done.wait(DEADLINE_S)
        assert join.item.id == given
    assert [each for each, _ in reported] == [given]
    assert reported[0][1].name == "leasehold callback"


def test_a_join_is_closed_after_an_exception_at_any_point_of_the_end_of_its_block() -> None:
    joins: list[Join] = []

    def block() -> None:
        with Join(Item("", (ServiceType("printer"),))) as join:
            joins.append(join)

    number = 1
    while Interruption(number, begin=("_leave",))(block):
        until(lambda: _is_closed(joins[-1]))
        number += 1
    assert number > 30


def _is_closed(join: Join) -> bool:
    try:
        join.registrars()
    except RuntimeError:
        return True
    return False
