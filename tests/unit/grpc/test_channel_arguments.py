"""What a channel refuses before anything is sent, and where it may be used."""

import asyncio
import math
import ssl
import sys
from typing import Any

import pytest

from leasehold.basics.addresses import parse_address
from leasehold.basics.tls import client_tls
from leasehold.errors import Closed
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_headers import MAX_HEADS, RequestHeads
from leasehold.grpc.endpoints import Endpoint, parse_endpoints
from leasehold.testing.simulation import run_virtual
from tests.support.raw_server import PATH, Net, echoing

WRONG: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "a path without a slash": ({"path": "test.Service/Method"}, ValueError),
    "an empty path": ({"path": ""}, ValueError),
    "a path with a space": ({"path": "/a b"}, ValueError),
    "a path in bytes": ({"path": b"/a/b"}, TypeError),
    "a path that is not ASCII": ({"path": "/ä/b"}, ValueError),
    "no time": ({"timeout": 0}, ValueError),
    "less than no time": ({"timeout": -1.0}, ValueError),
    "for ever": ({"timeout": math.inf}, ValueError),
    "not a number": ({"timeout": math.nan}, ValueError),
    "a time-out in words": ({"timeout": "5"}, TypeError),
    "a reserved key": ({"metadata": {"grpc-x": "1"}}, ValueError),
    "an upper-case key": ({"metadata": {"Key": "1"}}, ValueError),
    "bytes for text": ({"metadata": {"key": b"1"}}, TypeError),
    "text for bytes": ({"metadata": {"key-bin": "1"}}, TypeError),
    "a list for text": ({"metadata": {"key": ["1"]}}, TypeError),
    "metadata that is none": ({"metadata": 5}, TypeError),
    "metadata that is a text": ({"metadata": "ab"}, TypeError),
    "metadata that is an empty text": ({"metadata": ""}, TypeError),
    "pairs that are lists": ({"metadata": [["k", "v"]]}, TypeError),
    "pairs that are texts": ({"metadata": ["kv"]}, TypeError),
    "half a pair": ({"metadata": [("k",)]}, TypeError),
    "more than a pair": ({"metadata": [("k", "v", "w")]}, TypeError),
    "more than a float can be": ({"timeout": 10**400}, ValueError),
}


@pytest.mark.parametrize(("wrong", "error"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("is_connected", [False, True])
def test_wrong_arguments_are_refused_before_anything_is_sent(
    wrong: dict[str, Any], error: type[Exception], is_connected: bool
) -> None:
    async def main() -> None:
        net = Net()
        async with Channel("a:1", connect=net.connect) as channel:
            if is_connected:
                await channel.ready()
            path = wrong.get("path", PATH)
            others = {name: value for name, value in wrong.items() if name != "path"}
            with pytest.raises(error):
                await channel.unary(path, b"", **others)
            with pytest.raises(error):
                channel.stream(path, **others)
            assert len(net.dialed) == is_connected
            assert not any(transport.server.requests for transport in net.transports)

    run_virtual(main)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"metadata": 5}, "mapping, or tuples of key and value .* not 5"),
        ({"metadata": "ab"}, "mapping, or tuples of key and value .* not 'ab'"),
        ({"metadata": [["k", "v"]]}, r"tuples of key and value .* not \['k', 'v'\]"),
        ({"metadata": [("k",)]}, r"tuples of key and value .* not \('k',\)"),
        ({"endpoints": None}, "one or more str such as '127.0.0.1:2379', not None"),
        ({"endpoints": 5}, "one or more str such as '127.0.0.1:2379', not 5"),
        ({"endpoints": b"a:1"}, "one or more str such as '127.0.0.1:2379', not b'a:1'"),
        ({"keepalive_timeout": None}, "keepalive_timeout must be a number of seconds, not None"),
        ({"limits": None}, "limits must be of type ConnectionLimits, not None"),
        ({"limits": 5}, "limits must be of type ConnectionLimits, not 5"),
        ({"random": 5}, "random must be of type Random, not 5"),
    ],
)
def test_who_makes_a_channel_of_something_else_is_told_what_it_is_made_of(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        Channel(**({"endpoints": "a:1"} | wrong))


@pytest.mark.parametrize("timeout", [1e10, 1e307, sys.float_info.max, 10**300])
def test_a_time_out_may_be_longer_than_any_clock_runs(timeout: float) -> None:
    async def main() -> None:
        net = Net()
        net.serve = echoing
        longest: dict[str, Any] = {
            "keepalive": timeout,
            "keepalive_timeout": timeout,
            "default_timeout": timeout,
        }
        async with Channel("a:1", connect=net.connect, **longest) as channel:
            await channel.ready(timeout)
            assert await channel.unary(PATH, b"x", timeout=timeout) == b"x"
            async with channel.stream(PATH, timeout=timeout) as call:
                await call.send(b"y")
                call.end()
                assert await call.receive() == b"y"

    run_virtual(main)


@pytest.mark.parametrize("message", ["text", None, bytearray(b"x"), 5])
def test_a_message_is_bytes(message: Any) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match="a message must be bytes"):
            await Channel("a:1").unary(PATH, message)

    run_virtual(main)


@pytest.mark.parametrize(
    ("endpoints", "error"),
    [
        ([], ValueError),
        ("nowhere", ValueError),
        (["a:1", "b"], ValueError),
        (5, TypeError),
        ([5], TypeError),
        (None, TypeError),
    ],
)
def test_addresses_are_checked_at_once(endpoints: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Channel(endpoints)


@pytest.mark.parametrize(
    "wrong",
    [
        {"default_timeout": 0},
        {"keepalive": 0},
        {"keepalive_timeout": -1},
        {"user_agent": "two\nlines"},
        {"user_agent": ""},
        {"metadata": {"te": "x"}},
    ],
)
def test_so_is_all_else_that_is_said_of_a_channel(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"0 s|user agent|metadata key"):
        Channel("a:1", **wrong)


def test_a_context_for_tls_is_one() -> None:
    with pytest.raises(TypeError, match="SSLContext"):
        Channel("a:1", tls=True)  # type: ignore[arg-type]


def test_http_with_tls_is_refused_and_https_has_the_usual_context() -> None:
    with pytest.raises(ValueError, match="was given together with a TLS context"):
        Channel("http://a:1", tls=client_tls())
    plain, secure = parse_endpoints(["http://a:1", "https://b:2"], None, "test/1", ())
    assert plain.tls is None
    assert isinstance(secure.tls, ssl.SSLContext)


@pytest.mark.parametrize(
    ("address", "scheme", "authority"),
    [
        ("127.0.0.1:2379", "http", "127.0.0.1:2379"),
        ("http://localhost:1", "http", "localhost:1"),
        ("https://localhost:1", "https", "localhost:1"),
        ("[::1]:80", "http", "[::1]:80"),
        ("unix:/run/x.sock", "http", "localhost"),
    ],
)
def test_the_authority_is_host_and_port(address: str, scheme: str, authority: str) -> None:
    (endpoint,) = parse_endpoints(address, None, "test/1", ())
    fields = dict(endpoint.heads.get(PATH, None, None))
    assert fields[b":scheme"] == scheme.encode()
    assert fields[b":authority"] == authority.encode()


# Heads.


def test_a_head_has_its_fields_in_a_fixed_order() -> None:
    heads = RequestHeads(b"http", b"h:1", b"agent/1", ((b"all", b"calls"),))
    assert heads.get(PATH, 1.5, (("k", "v"), ("b-bin", b"\0"))) == (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", PATH.encode()),
        (b":authority", b"h:1"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"agent/1"),
        (b"grpc-accept-encoding", b"identity,gzip"),
        (b"grpc-timeout", b"1500000u"),
        (b"all", b"calls"),
        (b"k", b"v"),
        (b"b-bin", b"AA"),
    )


def test_calls_that_are_alike_share_one_head_and_time_outs_are_rounded() -> None:
    heads = RequestHeads(b"http", b"h:1", b"agent/1")
    assert heads.get(PATH, 1.5, None) is heads.get(PATH, 1.5, None)
    assert heads.get(PATH, 1.4999, None) is heads.get(PATH, 1.5, None)
    assert heads.get(PATH, 1.6, None) != heads.get(PATH, 1.5, None)
    assert heads.get(PATH, None, (("k", "v"),)) is heads.get(PATH, None, (("k", "v"),))


def test_heads_that_are_all_different_do_not_fill_the_memory() -> None:
    heads = RequestHeads(b"http", b"h:1", b"agent/1")
    for index in range(3 * MAX_HEADS):
        heads.get(PATH, None, (("id", str(index)),))
    assert len(heads._memo) <= MAX_HEADS


# Where it is used.


def test_a_channel_can_be_made_where_there_is_no_loop_and_used_later() -> None:
    net = Net()
    net.serve = echoing
    channel = Channel("a:1", connect=net.connect)

    async def main() -> None:
        async with channel:
            assert await channel.unary(PATH, b"x") == b"x"

    run_virtual(main)


def test_another_loop_is_refused() -> None:
    channel = Channel("127.0.0.1:1")

    async def first() -> None:
        with pytest.raises(ConnectionError):
            await channel.ready()

    async def second() -> None:
        with pytest.raises(RuntimeError, match="belongs to the event loop of its first call"):
            await channel.unary(PATH, b"x")
        with pytest.raises(RuntimeError, match="belongs to the event loop of its first call"):
            await channel.close()

    asyncio.run(first())
    asyncio.run(second())


def test_a_closed_channel_refuses_calls() -> None:
    async def main(is_used: bool) -> None:
        net = Net()
        channel = Channel("a:1", connect=net.connect)
        if is_used:
            await channel.ready()
        await channel.close()
        await channel.close()
        with pytest.raises(Closed, match="the channel was closed"):
            await channel.unary(PATH, b"x")
        with pytest.raises(Closed, match="the channel was closed"):
            await channel.ready()
        with pytest.raises(Closed, match="the channel was closed"):
            async with channel.stream(PATH):
                pass

    run_virtual(main, False)
    run_virtual(main, True)


@pytest.mark.parametrize(
    ("host", "authority"),
    [
        ("a" * 63, b"a" * 63 + b":2379"),
        ("x." + "b" * 60, b"x." + b"b" * 60 + b":2379"),
        ("b\xfccher.example", b"xn--bcher-kva.example:2379"),
        ("[::1]", b"[::1]:2379"),
    ],
)
def test_the_authority_is_the_host_and_its_port(host: str, authority: bytes) -> None:
    """The last label of a host has up to 63 characters, the port not counted."""
    endpoint = Endpoint(parse_address(f"{host}:2379"), None, b"test", ())
    fields = dict(endpoint.heads.get("/a.B/C", None, None))
    assert fields[b":authority"] == authority
