"""Listeners: which endpoints may be registered, connections to them, and events as JSON."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from leasehold.errors import (
    CallRefused,
    ConnectionLost,
    NoSuchObject,
    PermissionDenied,
    Status,
    TooBusy,
)
from leasehold.events import client
from leasehold.events.client import ListenerService, event_as_json, register_decoder
from leasehold.events.listeners import (
    CHANNEL_IDLE_S,
    NOTIFY,
    CallbackPolicy,
    ListenerCalls,
    notify_message,
    target_message,
    target_of,
)
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.grpc.protocol import RpcError
from leasehold.testing import run_virtual

PEER = "192.0.2.7:40312"
EVENT = RemoteEvent("00/renewal", "s", 2, 3, b"h", b"p")

# Which endpoints.


@pytest.mark.parametrize(
    ("endpoint", "peer"),
    [
        ("192.0.2.7:1", PEER),
        ("192.0.2.7:65535", PEER),
        ("https://192.0.2.7:1", PEER),
        ("[2001:db8::1]:7000", "[2001:db8::1]:5"),
        ("[2001:0db8:0::1]:7000", "[2001:db8::1]:5"),
        ("192.0.2.7:1", "[::ffff:192.0.2.7]:5"),
        ("localhost:7000", "127.0.0.1:5"),
        ("127.0.0.1:7000", "[::1]:5"),
        ("127.0.0.1:7000", "a Unix socket"),
    ],
)
def test_by_default_endpoints_at_the_address_of_the_connection_are_allowed(
    endpoint: str, peer: str
) -> None:
    assert CallbackPolicy().check(EventTarget(endpoint, "l"), peer).id == "l"


@pytest.mark.parametrize(
    ("endpoint", "peer"),
    [
        ("192.0.2.8:1", PEER),
        ("127.0.0.1:1", PEER),
        ("localhost:1", PEER),
        ("example.com:1", PEER),
        ("192.0.2.7:1", "127.0.0.1:5"),
        ("192.0.2.7:1", "a Unix socket"),
        ("unix:/run/x.sock", "a Unix socket"),
        ("unix:/run/x.sock", "127.0.0.1:5"),
        ("[::1]:1", PEER),
    ],
)
def test_by_default_all_other_endpoints_are_refused(endpoint: str, peer: str) -> None:
    with pytest.raises(PermissionDenied, match="is not allowed") as refused:
        CallbackPolicy().check(EventTarget(endpoint, "l"), peer)
    assert endpoint in str(refused.value)
    assert "--callbacks" in str(refused.value)
    assert refused.value.status is Status.PERMISSION_DENIED


def test_mailboxes_are_always_allowed() -> None:
    assert CallbackPolicy().check(EventTarget("", "0" * 32), PEER) == EventTarget("", "0" * 32)


def test_the_operator_lists_further_endpoints() -> None:
    policy = CallbackPolicy(["example.com", "10.0.0.1:7000", "unix:/run/x.sock"])
    assert policy.check(EventTarget("https://Example.COM:1", "l"), PEER).endpoint == (
        "https://example.com:1"
    )
    policy.check(EventTarget("10.0.0.1:7000", "l"), PEER)
    policy.check(EventTarget("unix:/run/x.sock", "l"), PEER)
    policy.check(EventTarget("192.0.2.7:9", "l"), PEER)
    for endpoint in ("10.0.0.1:7001", "example.org:1", "unix:/run/y.sock"):
        with pytest.raises(PermissionDenied):
            policy.check(EventTarget(endpoint, "l"), PEER)


@pytest.mark.parametrize("endpoint", ["nonsense", "127.1:7000", "unix:relative", "ftp://x:1"])
def test_a_malformed_endpoint_is_a_bad_argument(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"must|no port|unknown scheme"):
        CallbackPolicy(["*"]).check(EventTarget(endpoint, "l"), PEER)


@pytest.mark.parametrize("listener", ["", "x" * 257])
def test_the_id_of_a_listener_has_a_bounded_length(listener: str) -> None:
    with pytest.raises(ValueError, match=f"1 to 256 characters, got {len(listener)}"):
        CallbackPolicy().check(EventTarget("", listener), PEER)


def test_a_target_is_the_same_after_its_way_over_the_wire() -> None:
    for target in (EventTarget("", "a"), EventTarget("127.0.0.1:1", "b")):
        assert target_of(target_message(target)) == target
    assert str(EventTarget("", "a")) == "mailbox a"
    assert str(EventTarget("127.0.0.1:1", "b")) == "listener b at 127.0.0.1:1"


# Connections.


class FakeChannel:
    """Counts calls, and hangs if it is told to."""

    def __init__(self, endpoint: str, log: list[str]) -> None:
        self.endpoint = endpoint
        self.log = log
        self.error: Exception | None = None
        self.hangs = False

    async def unary(self, path: str, message: bytes, **options: Any) -> bytes:
        assert path == NOTIFY
        assert message
        assert options["idempotent"]
        await options["prepare"]()
        self.log.append(f"call {self.endpoint}")
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        return b""

    async def close(self) -> None:
        self.log.append(f"close {self.endpoint}")


class Exchange:
    """Calls with fake channels."""

    def __init__(self, max_channels: int = 2) -> None:
        self.log: list[str] = []
        self.made: dict[str, FakeChannel] = {}
        self.mailed: list[tuple[str, int]] = []
        self.calls = ListenerCalls(self._mail, max_channels=max_channels, connect=self._connect)

    def _connect(self, endpoint: str) -> Any:
        self.made[endpoint] = FakeChannel(endpoint, self.log)
        return self.made[endpoint]

    async def _mail(self, mailbox: str, events: Sequence[RemoteEvent]) -> None:
        self.mailed.append((mailbox, len(events)))

    async def send(self, endpoint: str) -> None:
        await self.calls.send(EventTarget(endpoint, "l"), [EVENT])


def test_events_for_mailboxes_need_no_connection() -> None:
    async def main() -> None:
        exchange = Exchange()
        await exchange.send("")
        assert exchange.mailed == [("l", 1)]
        assert exchange.calls.channels == 0

    run_virtual(main)


def test_calls_to_one_endpoint_share_a_connection_that_is_closed_when_it_is_idle() -> None:
    async def main() -> None:
        exchange = Exchange()
        for endpoint in ("a:1", "a:1", "b:1"):
            await exchange.send(endpoint)
        assert exchange.calls.channels == 2
        await asyncio.sleep(CHANNEL_IDLE_S - 1)
        await exchange.send("b:1")
        await asyncio.sleep(2)
        assert exchange.log == ["call a:1", "call a:1", "call b:1", "call b:1", "close a:1"]
        await exchange.calls.close()
        assert exchange.log[-1] == "close b:1"

    run_virtual(main)


def test_connections_are_bounded_and_the_one_that_is_idle_longest_makes_room() -> None:
    async def main() -> None:
        exchange = Exchange(max_channels=2)
        for endpoint in ("a:1", "b:1", "a:1", "c:1"):
            await exchange.send(endpoint)
            await asyncio.sleep(1)
        assert "close b:1" in exchange.log
        for endpoint in ("a:1", "c:1"):
            exchange.made[endpoint].hangs = True
        hanging = [asyncio.ensure_future(exchange.send(endpoint)) for endpoint in ("a:1", "c:1")]
        await asyncio.sleep(1)
        with pytest.raises(
            TooBusy, match="2 connections to callback endpoints are in use: events to b:1"
        ):
            await exchange.send("b:1")
        for each in hanging:
            each.cancel()
        await asyncio.wait(hanging)
        await exchange.send("b:1")
        await exchange.calls.close()

    run_virtual(main)


def test_a_source_is_checked_again_after_a_wait_for_the_connection() -> None:
    async def main() -> None:
        exchange = Exchange()

        def check() -> None:
            raise ConnectionLost("not served")

        with pytest.raises(ConnectionLost, match="not served"):
            await exchange.calls.send(EventTarget("a:1", "l"), [EVENT], check)
        assert exchange.log == []
        await exchange.calls.close()

    run_virtual(main)


def test_an_error_of_a_listener_becomes_one_of_the_library() -> None:
    async def main() -> None:
        exchange = Exchange()
        await exchange.send("a:1")
        exchange.made["a:1"].error = RpcError(Status.NOT_FOUND, "unknown")
        with pytest.raises(CallRefused, match="NOT_FOUND: unknown"):
            await exchange.send("a:1")
        await exchange.calls.close()

    run_virtual(main)


# A listener in this process.


def notify(service: ListenerService, listener: str, *events: RemoteEvent) -> None:
    async def main() -> None:
        assert await service.notify(notify_message(listener, events)) == (b"", 0)

    run_virtual(main)


def test_a_listener_gets_its_events_in_order() -> None:
    got: list[Any] = []

    async def slowly(event: RemoteEvent) -> None:
        await asyncio.sleep(1)
        got.append(event)

    service = ListenerService({"plain": got.append, "async": slowly})
    later = RemoteEvent("00/renewal", "s", 2, 4, b"h", b"")
    notify(service, "plain", EVENT, later)
    notify(service, "async", EVENT, later)
    assert got == [EVENT, later, EVENT, later]


def test_an_unknown_listener_is_not_found() -> None:
    with pytest.raises(RpcError, match="listener 'x' is not served by this process") as refused:
        ListenerService({}).notify(notify_message("x", [EVENT]))
    assert refused.value.status is Status.NOT_FOUND


def test_a_listener_that_raises_gets_the_event_again_unless_it_is_gone() -> None:
    def fail(_event: RemoteEvent) -> None:
        raise KeyError("x")

    def gone(_event: RemoteEvent) -> None:
        raise NoSuchObject("mine", "x")

    service = ListenerService({"fails": fail, "gone": gone})
    with pytest.raises(RpcError, match="the listener failed: KeyError") as failed:
        notify(service, "fails", EVENT)
    assert failed.value.status is Status.UNKNOWN
    with pytest.raises(NoSuchObject):
        notify(service, "gone", EVENT)


# Events as JSON.


def test_an_event_is_shown_as_json_by_the_decoder_of_its_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_DECODERS", {})
    head = {"service": "00/renewal", "source": "s", "kind": 2, "number": 3, "handback": "aA=="}
    assert event_as_json(EVENT) == head | {"payload_base64": "cA=="}
    register_decoder("renewal", lambda event: {"text": event.payload.decode()})
    assert event_as_json(EVENT) == head | {"payload": {"text": "p"}}

    def fail(_event: RemoteEvent) -> dict[str, Any]:
        raise ValueError("of a later version")

    register_decoder("renewal", fail)
    assert event_as_json(EVENT) == head | {"payload_base64": "cA=="}
