"""Calls that are passed on to the server that owns a shard."""

import asyncio
from collections.abc import Mapping
from itertools import count
from time import monotonic
from unittest.mock import Mock

import pytest

from leasehold.errors import (
    ConnectFailed,
    ConnectionLost,
    EmptyKey,
    LeaseholdError,
    NoSuchObject,
    ShardLost,
    Status,
    TooBusy,
)
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.error_details import REFUSED, as_ours, as_rpc_error
from leasehold.grpc.protocol import ErrorDetail, RpcError
from leasehold.grpc.routes import Exchange
from leasehold.services.forwarding import (
    FORWARDED,
    PEER,
    TIMEOUT_S,
    Forwarder,
    Handler,
    is_forwarded,
    methods_of,
)
from tests.support.asynchronous import asynchronous, until
from tests.support.server_calls import FixedShards, ServerCalls, a_context

COUNT = 4
PATH = "/test.Notes/Show"


class FakeServer:
    """A server with one method, which answers with its address."""

    def __init__(self, calls: ServerCalls, address: str, owners: Mapping[int, str]) -> None:
        self.shards = FixedShards(Mock(), address, owners, COUNT)
        self.forwarder = Forwarder(self.shards, calls.channel)
        self.seen: list[CallContext] = []
        self.clients: list[str] = []
        self.error: Exception | None = None
        calls.servers[address] = methods_of("test.Notes", {"Show": self.show})

    async def show(self, message: bytes, context: CallContext) -> bytes:
        return await self.forwarder.call(message.decode(), message, context, self.answer)

    async def answer(self, message: bytes, context: CallContext) -> bytes:
        self.seen.append(context)
        self.clients.append(self.forwarder.client_address(context))
        if self.error is not None:
            raise self.error
        return self.shards.address.encode() + b" has " + message


def an_id(shard: int, shards: int = COUNT) -> str:
    """Return an id of an object of a shard."""
    probe = FixedShards(Mock(), "", {}, shards)
    return next(text for n in count() if probe.shard_of(text := f"{n:032x}") == shard)


def pair(owners: Mapping[int, str] | None = None) -> tuple[ServerCalls, FakeServer, FakeServer]:
    """Return two servers; shard 0 belongs to `a:1`, shard 1 to `b:1`, the others to none."""
    calls, owners = ServerCalls(), owners or {0: "a:1", 1: "b:1"}
    a, b = FakeServer(calls, "a:1", owners), FakeServer(calls, "b:1", owners)
    a.shards.servers |= b.shards.servers
    b.shards.servers |= a.shards.servers
    return calls, a, b


async def refusal_of(server: FakeServer, shard: int, context: CallContext) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await server.show(an_id(shard).encode(), context)
    return caught.value


# Where a call is answered.


@asynchronous
async def test_a_call_is_answered_here_or_at_the_owner_of_the_shard() -> None:
    calls, a, _ = pair()
    here, there = an_id(0).encode(), an_id(1).encode()
    assert await a.show(here, a_context()) == b"a:1 has " + here
    assert calls.made == []
    assert await a.show(there, a_context()) == b"b:1 has " + there
    assert [(call.address, call.path, call.message) for call in calls.made] == [
        ("b:1", PATH, there)
    ]


@asynchronous
async def test_a_call_that_was_passed_on_is_never_passed_on_again() -> None:
    calls, a, b = pair()
    a.shards.owners[2], b.shards.owners[2] = "b:1", "a:1"  # each believes that it is the other
    error = await refusal_of(a, 2, a_context())
    assert len(calls.made) == 1
    assert error.status is Status.UNAVAILABLE
    assert error.message == (
        "leasehold: shard 02 is not served here: "
        "the call was passed on to a server that has lost it"
    )
    ours = as_ours(error)
    assert isinstance(ours, ShardLost)
    assert ours.shard == 2
    assert ours.not_executed


@asynchronous
async def test_a_shard_without_an_owner_is_unavailable() -> None:
    calls, a, _ = pair()
    error = await refusal_of(a, 3, a_context())
    assert error.status is Status.UNAVAILABLE
    ours = as_ours(error)
    assert isinstance(ours, ShardLost)
    assert (ours.shard, ours.why, ours.not_executed) == (3, "it has no owner at present", True)
    assert calls.made == []


@asynchronous
async def test_a_server_that_has_lost_its_session_does_not_call_itself() -> None:
    calls, a, _ = pair()
    a.shards.disown(0)
    error = await refusal_of(a, 0, a_context())
    assert isinstance(as_ours(error), ShardLost)
    assert calls.made == []
    assert a.forwarder.others() == {"b:1": 1}


@asynchronous
async def test_a_server_that_is_starting_is_unavailable() -> None:
    _, a, _ = pair({1: "b:1"})
    a.shards.count = 0
    with pytest.raises(ShardLost, match="the server is starting"):
        await a.show(an_id(0).encode(), a_context())
    with pytest.raises(RpcError, match="has no owner") as caught:
        await a.forwarder.call_any(b"", a_context(), a.answer)
    assert caught.value.status is Status.UNAVAILABLE


@asynchronous
async def test_any_server_with_a_shard_answers_a_call_for_any_of_them() -> None:
    calls, a, _ = pair({1: "b:1", 2: "b:1"})
    assert await a.forwarder.call_any(an_id(1).encode(), a_context(), a.answer)
    assert [call.address for call in calls.made] == ["b:1"]
    calls, a, _ = pair()
    assert await a.forwarder.call_any(b"x", a_context(), a.answer) == b"a:1 has x"
    assert calls.made == []
    calls, a, b = pair({1: "b:1"})
    b.shards.disown(1)
    error = await _error_of_any(a)  # `b` refuses it
    assert len(calls.made) == 1
    assert error.status is Status.UNAVAILABLE


async def _error_of_any(server: FakeServer) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await server.forwarder.call_any(an_id(1).encode(), a_context(), server.answer)
    return caught.value


@asynchronous
async def test_the_server_of_an_object() -> None:
    _, a, _ = pair({0: "a:1", 1: "b:1", 2: "b:1"})
    forwarder = a.forwarder
    assert [forwarder.server_of(an_id(shard)) for shard in range(3)] == ["", "b:1", "b:1"]
    with pytest.raises(ShardLost, match="shard 03 is not served here: it has no owner"):
        forwarder.server_of(an_id(3))
    assert forwarder.others() == {"b:1": 1}


@asynchronous
async def test_an_owner_with_the_address_of_this_server_is_named() -> None:
    calls, a, _ = pair({0: "a:1"})
    a.shards.disown(0)
    with pytest.raises(ShardLost, match="two servers have the same --advertise address"):
        a.forwarder.server_of(an_id(0))
    error = await refusal_of(a, 0, a_context())
    assert "its owner has the address of this server, a:1" in error.message
    assert calls.made == []


# What is passed on.


@asynchronous
async def test_the_remaining_time_is_passed_on_by_the_clock_of_the_deadline() -> None:
    calls, a, _ = pair()
    there = an_id(1).encode()
    asyncio.get_running_loop().time = lambda: monotonic() - 1e6  # type: ignore[method-assign]
    await a.show(there, a_context(timeout_s=1000.0, waited_s=400.0))
    await a.show(there, a_context(timeout_s=1.0, waited_s=400.0))
    await a.show(there, a_context())
    del asyncio.get_running_loop().time
    remaining, over, without = [call.timeout_s for call in calls.made]
    assert remaining is not None
    assert 500.0 < remaining <= 600.0
    assert over == 0.001
    assert without is None, "a read that waits for an event may take longer than any default"


@asynchronous
async def test_metadata_of_the_client_is_passed_on_without_the_reserved_fields() -> None:
    calls, a, b = pair()
    sent = (
        ("authorization", "Bearer x"),
        ("trace-bin", b"\0\xff"),
        ("tag", "1"),
        ("tag", "2"),
        (PEER, "10.9.9.9:1"),
        ("connection", "close"),
        ("x-text", "no ASCII: \xe9"),
    )
    await a.show(an_id(1).encode(), a_context(metadata=sent))
    assert calls.made[0].metadata == (
        *sent[:4],
        (FORWARDED, a.shards.server),
        (PEER, "192.0.2.7:40312"),
    )
    assert is_forwarded(b.seen[0])


@asynchronous
async def test_a_call_of_the_server_itself_has_no_client() -> None:
    calls, a, b = pair()
    await a.forwarder.pass_on(1, PATH, an_id(1).encode())
    assert calls.made[0].metadata == ((FORWARDED, a.shards.server),)
    assert calls.made[0].timeout_s == TIMEOUT_S
    assert b.clients == ["10.0.0.1:40312"], "the address of the server"


# The address of the client.


@asynchronous
async def test_the_address_of_a_client_is_the_one_that_the_first_server_has_seen() -> None:
    _, a, b = pair()
    await a.show(an_id(1).encode(), a_context())
    await a.show(an_id(0).encode(), a_context())
    assert b.clients == a.clients == ["192.0.2.7:40312"]


@pytest.mark.parametrize("claimed", [None, "", "None", "a:1", "id of c:1"])
@asynchronous
async def test_a_client_cannot_claim_the_address_of_another_one(claimed: str | None) -> None:
    calls, a, b = pair()
    forged = ((PEER, "127.0.0.1:1"), *(() if claimed is None else ((FORWARDED, claimed),)))
    await b.show(an_id(1).encode(), a_context(metadata=forged))
    assert b.clients == ["192.0.2.7:40312"]
    if claimed is None:  # it is passed on with the address that `a` has seen
        await a.show(an_id(1).encode(), a_context(metadata=forged))
        assert b.clients[1] == "192.0.2.7:40312"
    else:  # the client only keeps its own call from being passed on
        error = await refusal_of(a, 1, a_context(metadata=forged))
        assert error.status is Status.UNAVAILABLE
        assert calls.made == []


@asynchronous
async def test_a_server_that_is_not_alive_any_more_is_not_believed() -> None:
    _, a, b = pair()
    b.shards.servers.remove(a.shards.server)
    await a.show(an_id(1).encode(), a_context())
    assert b.clients == ["10.0.0.1:40312"], "the address of that server"


# Errors.


@asynchronous
async def test_an_error_arrives_unchanged() -> None:
    _, a, b = pair()
    b.error = NoSuchObject("notes", "7")
    error = await refusal_of(a, 1, a_context())
    direct = as_rpc_error(b.error, PATH)
    assert (error.status, error.message, error.detail) == (
        direct.status,
        direct.message,
        direct.detail,
    )
    ours = as_ours(error)
    assert isinstance(ours, NoSuchObject)
    assert (ours.service, ours.id) == ("notes", "7")
    b.error = RpcError(Status.ABORTED, "own text", detail=ErrorDetail("OWN", {"a": "b"}))
    assert await refusal_of(a, 1, a_context()) is b.error


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (ConnectFailed("no server listens"), Status.UNAVAILABLE),
        (TooBusy("too many streams"), Status.RESOURCE_EXHAUSTED),
    ],
)
@asynchronous
async def test_a_call_that_was_not_sent_was_not_executed(
    failure: LeaseholdError, status: Status
) -> None:
    calls, a, _ = pair()
    calls.failure = failure
    error = await refusal_of(a, 1, a_context())
    assert error.status is status
    assert str(failure) in error.message
    ours = as_ours(error)
    assert isinstance(ours, LeaseholdError)
    assert ours.not_executed


@asynchronous
async def test_a_call_without_an_answer_may_have_been_executed() -> None:
    calls, a, _ = pair()
    calls.failure = ConnectionLost("the connection was lost")
    with pytest.raises(ConnectionLost) as caught:
        await a.show(an_id(1).encode(), a_context())
    ours = as_ours(as_rpc_error(caught.value, PATH))
    assert isinstance(ours, LeaseholdError)
    assert not ours.not_executed


@pytest.mark.parametrize("address", ["no address", "b:port", "b:65536"])
@asynchronous
async def test_an_address_that_cannot_be_called_is_not_a_mistake_of_the_client(
    address: str,
) -> None:
    forwarder = Forwarder(FixedShards(Mock(), "a:1", {1: address}, COUNT))

    async def show(message: bytes, context: CallContext) -> bytes:
        return await forwarder.pass_on(1, PATH, message, context)

    with pytest.raises(RpcError, match="the address of another server is not valid") as caught:
        await _call(show)
    assert caught.value.status is Status.UNAVAILABLE
    assert address in caught.value.message
    ours = as_ours(caught.value)
    assert isinstance(ours, LeaseholdError)
    assert ours.not_executed
    await forwarder.close()


# Methods.


async def _call(handler: Handler) -> bytes:
    methods = methods_of("test.Notes", {"Show": handler})
    (method,) = methods.values()
    assert list(methods) == [PATH]
    assert isinstance(method, Exchange)
    assert method.is_unary
    assert method.reads_context
    answer, position = await method.call(b"m", a_context())  # type: ignore[misc]
    assert position == 0
    assert isinstance(answer, bytes)
    return answer


def _raising(error: Exception) -> Handler:
    async def handler(message: bytes, context: CallContext) -> bytes:
        raise error

    return handler


@asynchronous
async def test_a_method_is_called_with_the_message_and_the_context() -> None:
    async def handler(message: bytes, context: CallContext) -> bytes:
        return message + context.path.encode()

    assert await _call(handler) == b"m" + PATH.encode()


@asynchronous
async def test_a_value_error_is_an_invalid_argument_with_its_text() -> None:
    with pytest.raises(RpcError) as caught:
        await _call(_raising(ValueError("ttl_ms must be positive, got 0")))
    error = caught.value
    assert (error.status, error.message) == (
        Status.INVALID_ARGUMENT,
        "ttl_ms must be positive, got 0",
    )
    assert error.detail == REFUSED


@pytest.mark.parametrize(
    "error", [EmptyKey(), ShardLost(1, "why"), RpcError(Status.ABORTED, "x"), TypeError("a bug")]
)
@asynchronous
async def test_any_other_error_of_a_method_is_its_own(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        await _call(_raising(error))
    assert caught.value is error


# Channels.


def _many(max_channels: int, servers: int = 6) -> tuple[ServerCalls, Forwarder, asyncio.Event]:
    """Return a forwarder to many servers; they answer `wait` when the event is set."""
    calls, is_set = ServerCalls(), asyncio.Event()

    async def answer(message: bytes, context: CallContext) -> bytes:
        if message == b"wait":
            await is_set.wait()
        return message

    addresses = {number: f"b{number}:1" for number in range(servers)}
    for address in addresses.values():
        calls.servers[address] = methods_of("test.Notes", {"Show": answer})
    shards = FixedShards(Mock(), "a:1", addresses, servers)
    return calls, Forwarder(shards, calls.channel, max_channels=max_channels), is_set


@asynchronous
async def test_channels_are_kept_and_the_one_idle_for_longest_is_closed_for_another() -> None:
    calls, forwarder, _ = _many(2)
    for shard in (0, 1, 0, 0):
        await forwarder.pass_on(shard, PATH, b"")
    assert calls.open == ["b0:1", "b1:1"]
    await forwarder.pass_on(2, PATH, b"")
    await until(lambda: calls.open == ["b0:1", "b2:1"])
    await forwarder.close()
    assert calls.open == []


@asynchronous
async def test_a_channel_with_a_call_under_way_is_not_closed_for_another() -> None:
    calls, forwarder, is_set = _many(2)
    slow = asyncio.ensure_future(forwarder.pass_on(0, PATH, b"wait"))
    await asyncio.sleep(0)
    for shard in (1, 2, 3):
        await forwarder.pass_on(shard, PATH, b"")
    second = asyncio.ensure_future(forwarder.pass_on(3, PATH, b"wait"))
    await asyncio.sleep(0)
    await until(lambda: calls.open == ["b0:1", "b3:1"])
    with pytest.raises(RpcError, match="all 2 connections to other servers are in use") as caught:
        await forwarder.pass_on(4, PATH, b"")
    ours = as_ours(caught.value)
    assert isinstance(ours, TooBusy)
    assert ours.not_executed
    assert await forwarder.pass_on(0, PATH, b"x") == b"x", "an open one is used by further calls"
    is_set.set()
    assert await slow == await second == b"wait"
    assert await forwarder.pass_on(4, PATH, b"x") == b"x"
    await forwarder.close()
    assert calls.open == []


@asynchronous
async def test_a_call_that_fails_or_is_cancelled_leaves_its_channel_idle() -> None:
    calls, forwarder, _ = _many(1)
    slow = asyncio.ensure_future(forwarder.pass_on(0, PATH, b"wait"))
    await asyncio.sleep(0)
    slow.cancel()
    await asyncio.wait([slow])
    calls.failure = ConnectionLost("x")
    with pytest.raises(ConnectionLost):
        await forwarder.pass_on(1, PATH, b"")
    calls.failure = None
    assert await forwarder.pass_on(2, PATH, b"x") == b"x"
    await forwarder.close()
    assert calls.open == []


@asynchronous
async def test_nothing_is_passed_on_after_the_close() -> None:
    calls, forwarder, _ = _many(2)
    await forwarder.close()
    with pytest.raises(RpcError, match="this server is being stopped") as caught:
        await forwarder.pass_on(0, PATH, b"")
    assert caught.value.status is Status.UNAVAILABLE
    ours = as_ours(caught.value)
    assert isinstance(ours, LeaseholdError)
    assert ours.not_executed
    assert calls.open == []


@asynchronous
async def test_a_call_that_the_close_has_cut_off_may_have_been_executed() -> None:
    calls, forwarder, _ = _many(2)
    slow = asyncio.ensure_future(forwarder.pass_on(0, PATH, b"wait"))
    await until(lambda: bool(calls.made))
    await forwarder.close()
    with pytest.raises(ConnectionLost, match="the channel was closed") as caught:
        await slow
    assert not caught.value.not_executed
    assert calls.open == []


@asynchronous
async def test_a_call_that_the_other_server_has_cancelled_is_passed_back_as_it_is() -> None:
    calls, forwarder, _ = _many(2)
    calls.failure = RpcError(Status.CANCELLED, "by the handler")
    with pytest.raises(RpcError) as caught:
        await forwarder.pass_on(0, PATH, b"")
    assert caught.value is calls.failure
    await forwarder.close()
