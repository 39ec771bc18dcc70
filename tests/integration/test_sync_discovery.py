"""`leasehold.sync.Discovery` and `Join` with real servers, by locator; at exit and after a fork."""

import threading

import leasehold.sync
from leasehold.discovery.state import DiscoveryEvent
from leasehold.registry.codecs import service_item, service_template
from leasehold.registry.state import Item, attribute_set
from leasehold.sync import Discovery, Join
from leasehold.testing.local_server import LocalServer
from tests.support.scripts import printed_by, until

SOON_S = 30.0
PRINTER = service_item(types=["printer"], endpoint="10.0.0.7:631")


def locator_of(server: LocalServer) -> str:
    return f"leasehold://localhost:{server.port}"


def printers(server: LocalServer) -> list[Item]:
    with leasehold.sync.connect(server.endpoint) as client:
        found = client.registry.lookup(service_template(types=["printer"]), 10)
    return [item for item in found.items if item is not None]


def floors(server: LocalServer) -> list[int]:
    return [len(item.attributes) for item in printers(server)]


def test_a_registrar_is_found_by_locator_and_a_listener_is_called() -> None:
    found = threading.Event()
    events: list[DiscoveryEvent] = []

    def listener(event: DiscoveryEvent) -> None:
        events.append(event)
        found.set()

    with LocalServer() as server, Discovery(locators=[locator_of(server)]) as discovery:
        discovery.add_listener(listener)
        assert found.wait(SOON_S)
        assert [list(event.registrars) for event in events] == [discovery.registrars()]
        assert discovery.undiscovered_locators() == []
        assert discovery.discovered_locators() == discovery.locators()


def test_a_join_registers_a_service_sends_changes_and_ends_with_its_block() -> None:
    ids: list[str] = []
    with LocalServer() as first, LocalServer() as second:
        with Join(PRINTER, locators=[locator_of(first)], on_id=ids.append, duration=30.0) as join:
            until(lambda: len(join.registrars()) == 1)
            join.add_attributes([attribute_set("Location", {"floor": 3})])
            join.discovery.add_locators([locator_of(second)])
            until(lambda: floors(first) == floors(second) == [1])
            until(lambda: ids == [join.item.id])
            assert [item.id for item in printers(second)] == ids
        assert printers(first) == printers(second) == []


def test_a_join_that_is_open_at_exit_is_closed() -> None:
    with LocalServer() as server:
        printed = printed_by(
            """
            import sys, threading
            from leasehold.registry.codecs import service_item
            from leasehold.sync import Join

            named = threading.Event()
            printer = service_item(types=["printer"], endpoint="10.0.0.7:631")
            join = Join(printer, locators=sys.argv[1:], on_id=lambda _: named.set(), duration=3600)
            print(named.wait(30))
            """,
            locator_of(server),
        )
        assert printed == "True\n"
        assert printers(server) == []


def test_a_forked_child_is_refused_and_its_close_ends_nothing() -> None:
    with LocalServer() as server:
        printed = printed_by(
            """
            import os, sys, threading
            import leasehold
            from leasehold.registry.codecs import service_item
            from leasehold.sync import Join

            named = threading.Event()
            printer = service_item(types=["printer"], endpoint="10.0.0.7:631")
            with Join(printer, locators=sys.argv[1:], on_id=lambda _: named.set()) as join:
                named.wait(30)
                if not os.fork():
                    for call in (join.registrars, join.discovery.registrars):
                        try:
                            call()
                        except leasehold.Forked:
                            print("forked", flush=True)
                    join.close()
                    os._exit(0)
                os.wait()
                print(len(join.registrars()))
            """,
            locator_of(server),
        )
        assert printed == "forked\nforked\n1\n"
