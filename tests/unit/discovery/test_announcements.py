"""The records of announcements, and which endpoints a server announces."""

import asyncio
import sys
from typing import Any, ClassVar

import ifaddr
import pytest
import zeroconf
from zeroconf import RecordUpdate
from zeroconf._dns import DNSText

from leasehold.basics.addresses import TcpAddress, UnixAddress
from leasehold.discovery.announced import MAX_ENDPOINTS, Announcement
from leasehold.discovery.announcements import (
    SERVICE,
    Announcer,
    Browser,
    announced_endpoints,
    announcement_of,
    text_of,
)
from leasehold.discovery.discovery import Discovery
from leasehold.testing import run_virtual


def test_an_announcement_has_the_registrar_the_number_of_its_groups_and_endpoints() -> None:
    text = text_of("R", 7, ["10.0.0.1:2379", "https://db.example.org:1"])
    assert announcement_of("s", text, 120.0) == Announcement(
        "s", "R", ("10.0.0.1:2379", "https://db.example.org:1"), 7, 120.0
    )


def test_its_size_does_not_depend_on_the_groups_and_is_limited() -> None:
    endpoints = [f"{'x' * 60}.{'y' * 60}.{'z' * 60}.{number}:2379" for number in range(100)]
    found = announcement_of("s", text_of("R" * 36, 2**62, endpoints), 120.0)
    assert found is not None
    assert len(found.endpoints) == MAX_ENDPOINTS
    assert announcement_of("s", text_of("R", 1, ["10.0.0.1:1", "x" * 300 + ":1"]), 1.0) == (
        Announcement("s", "R", ("10.0.0.1:1",), 1, 1.0)
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0",
        b"\xff",
        b"\x05id=R1",
        text_of("", 1, ["10.0.0.1:1"]),
        text_of("R", 1, []),
        text_of("R", 1, ["not an address"]),
        text_of("R", 1, ["10.0.0.1:1"]).replace(b"groups=1", b"groups=x"),
        text_of("R", 1, ["10.0.0.1:1"]).replace(b"id=R", b"id=\xff"),
    ],
)
def test_a_record_that_is_not_an_announcement_is_ignored(text: bytes) -> None:
    assert announcement_of("s", text, 120.0) is None


def test_endpoints_on_the_machine_of_the_listener_are_left_out() -> None:
    given = ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/x.sock", "10.0.0.1:0", "a.b:1"]
    found = announcement_of("s", text_of("R", 1, given), 120.0)
    assert found is not None
    assert found.endpoints == ("a.b:1",)


def test_a_server_that_listens_on_loopback_only_has_nothing_to_announce() -> None:
    loopback = (TcpAddress("127.0.0.1", 1), TcpAddress("::1", 1), TcpAddress("localhost", 1))
    assert announced_endpoints([*loopback, UnixAddress("/run/x.sock")]) == []
    assert announced_endpoints([*loopback, TcpAddress("10.0.0.1", 2)]) == ["http://10.0.0.1:2"]


def test_the_advertised_address_is_announced_in_place_of_others() -> None:
    bound = [TcpAddress("10.0.0.1", 1)]
    assert announced_endpoints(bound, TcpAddress("db.example.org", 2)) == [
        "http://db.example.org:2"
    ]
    assert announced_endpoints(bound, TcpAddress("localhost", 2)) == []


def test_endpoints_with_tls_say_so() -> None:
    assert announced_endpoints([TcpAddress("10.0.0.1", 1)], is_tls=True) == ["https://10.0.0.1:1"]


def test_an_address_of_all_interfaces_is_replaced_by_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ips = [
        ifaddr.IP("127.0.0.1", 8, "lo"),
        ifaddr.IP("10.0.0.7", 24, "eth0"),
        ifaddr.IP(("fe80::1", 0, 2), 64, "eth0"),
        ifaddr.IP(("fd00::7", 0, 2), 64, "eth0"),
    ]
    adapters = [ifaddr.Adapter("eth0", "eth0", ips)]
    monkeypatch.setattr(ifaddr, "get_adapters", lambda: adapters)
    assert announced_endpoints([TcpAddress("0.0.0.0", 1)]) == ["http://10.0.0.7:1"]  # noqa: S104
    assert announced_endpoints([TcpAddress("::", 1)]) == [
        "http://10.0.0.7:1",
        "http://[fd00::7]:1",
    ]


# Records that arrive.


def record(text: bytes, ttl: int = 120, name: str = f"s.{SERVICE}") -> RecordUpdate:
    return RecordUpdate(DNSText(name, 16, 1, ttl, text, 1000.0), None)


def test_each_record_is_passed_on_and_a_ttl_of_0_is_a_goodbye() -> None:
    heard: list[object] = []
    browser: Any = Browser.__new__(Browser)  # without sockets
    browser._announced = browser._withdrawn = heard.append
    text = text_of("R", 1, ["10.0.0.1:1"])
    server = f"s.{SERVICE}"
    records = [
        record(text),
        record(text),  # again: it is still there
        record(b"\x05other"),
        record(text, name="s._other._tcp.local."),
        record(text, ttl=0),
    ]
    browser.async_update_records(None, 2000.0, records)
    announced = Announcement(server, "R", ("10.0.0.1:1",), 1, 120)
    assert heard == [announced, announced, server]


def test_a_record_that_the_cache_lets_go_of_is_not_a_goodbye() -> None:
    heard: list[object] = []
    browser: Any = Browser.__new__(Browser)
    browser._announced = browser._withdrawn = heard.append
    old = record(text_of("R", 1, ["10.0.0.1:1"]), ttl=1)  # a newer one has replaced it
    browser.async_update_records(None, 1000.0 + 5000.0, [old])
    assert heard == []


# Records that are sent.


class FakeZeroconf:
    """Records what is sent."""

    def __init__(self, **_options: object) -> None:
        self.sent: list[tuple[float, str]] = []
        self.zeroconf = self
        self.is_closed = False
        FakeZeroconf.last = self

    is_failing = False
    last: ClassVar["FakeZeroconf"]

    async def _send(self, what: str) -> "asyncio.Future[None]":
        if self.is_failing:
            raise zeroconf.NonUniqueNameException
        loop = asyncio.get_running_loop()
        self.sent.append((loop.time(), what))
        done = loop.create_future()
        done.set_result(None)
        return done

    async def async_register_service(self, info: Any, **_options: object) -> Any:
        assert info.text == text_of("R", 1, ["http://10.0.0.1:2379"])
        assert (info.host_ttl, info.other_ttl, info.port) == (120, 120, 2379)
        return await self._send("register")

    async def async_update_service(self, info: Any) -> Any:
        assert info.text == text_of("R", 2, ["http://10.0.0.1:2379"])
        return await self._send("update")

    def generate_service_broadcast(self, info: Any, ttl: int | None) -> str:
        return "again"

    def async_send(self, what: str) -> None:
        self.sent.append((asyncio.get_running_loop().time(), what))

    async def async_unregister_all_services(self) -> None:
        await self._send("goodbye")

    async def async_close(self) -> None:
        self.is_closed = True


def test_a_server_announces_itself_repeatedly_and_its_changes_and_says_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leasehold.discovery.announcements.AsyncZeroconf", FakeZeroconf)

    async def main() -> None:
        announcer = Announcer("R", ["http://10.0.0.1:2379"], 120)
        await announcer.announce(1)
        await asyncio.sleep(119)
        await announcer.announce(2)
        await announcer.close()
        await asyncio.sleep(120)

    run_virtual(main)
    sent = FakeZeroconf.last.sent
    assert [what for _, what in sent] == ["register", "again", "again", "update", "goodbye"]
    assert sent[1][0] - sent[0][0] == pytest.approx(40.0)


def test_a_failure_of_multicast_dns_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.discovery.announcements.AsyncZeroconf", FakeZeroconf)

    async def main() -> None:
        announcer = Announcer("R", ["http://10.0.0.1:2379"], 120)
        await announcer.announce(1)
        FakeZeroconf.last.is_failing = True
        with pytest.raises(OSError, match="NonUniqueName"):
            await announcer.announce(2)
        FakeZeroconf.last.is_failing = False
        await announcer.close()

    run_virtual(main)


def test_a_server_that_could_not_be_announced_is_registered_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leasehold.discovery.announcements.AsyncZeroconf", FakeZeroconf)
    monkeypatch.setattr(FakeZeroconf, "is_failing", True)

    async def main() -> None:
        announcer = Announcer("R", ["http://10.0.0.1:2379"], 120)
        with pytest.raises(OSError, match="NonUniqueName"):
            await announcer.announce(1)
        assert FakeZeroconf.last.is_closed
        monkeypatch.setattr(FakeZeroconf, "is_failing", False)
        await announcer.announce(1)
        await announcer.close()

    run_virtual(main)
    assert [what for _, what in FakeZeroconf.last.sent] == ["register", "goodbye"]


def test_a_failure_of_one_repetition_does_not_end_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.discovery.announcements.AsyncZeroconf", FakeZeroconf)
    failures = [OSError("network is unreachable"), zeroconf.NotRunningException()]

    def broadcast(self: FakeZeroconf, info: Any, ttl: int | None) -> str:
        if failures:
            raise failures.pop()
        return "again"

    monkeypatch.setattr(FakeZeroconf, "generate_service_broadcast", broadcast)

    async def main() -> None:
        announcer = Announcer("R", ["http://10.0.0.1:2379"], 120)
        await announcer.announce(1)
        await asyncio.sleep(130)
        await announcer.close()

    run_virtual(main)
    assert [what for _, what in FakeZeroconf.last.sent] == ["register", "again", "goodbye"]


def test_without_zeroconf_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "leasehold.discovery.announcements", None)

    async def main() -> None:
        with pytest.raises(ImportError, match=r"install leasehold\[discovery\]"):
            Discovery(["a"])
        async with Discovery(locators=["leasehold://127.0.0.1:1"]):
            pass  # locators do not need it

    asyncio.run(main())
