"""One check for every call: gRPC and JSON, unary and streaming, with client certificates."""

import asyncio
import http.client
import json
import ssl
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest
import trustme

from leasehold.basics.addresses import TcpAddress
from leasehold.basics.tls import client_tls, server_tls
from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, DoneCallback
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.wire import rpc_pb2 as pb
from tests.support.echoing import DEADLINE_S, Run, both_loops

PUT: Final = "/etcdserverpb.KV/Put"
WATCH: Final = "/etcdserverpb.Watch/Watch"
MESSAGE: Final = pb.PutRequest(key=b"a", value=b"1").SerializeToString()
WATCH_A: Final = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")).SerializeToString()
REFUSED: Final = "a token is required"


class TokenCheck:
    """Refuses calls without a token, and records all contexts."""

    def __init__(self) -> None:
        self.seen: list[CallContext] = []

    def __call__(self, context: CallContext) -> None:
        self.seen.append(context)
        metadata = dict(context.metadata)
        if "secret" not in (metadata.get("token"), metadata.get("authorization")):
            raise RpcError(Status.UNAUTHENTICATED, REFUSED)


def _names(certificate: Any) -> list[str]:
    return [value for _, value in certificate["subjectAltName"]]


async def _refused_stream(channel: Channel) -> Status:
    async with channel.stream(WATCH, timeout=DEADLINE_S) as call:
        await call.send(WATCH_A)
        with pytest.raises(RpcError, match=REFUSED) as raised:
            await call.receive()
    return raised.value.status


def _post(
    port: int, tls: ssl.SSLContext | None, path: str, body: dict[str, str], **fields: str
) -> tuple[int, dict[str, Any]]:
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=DEADLINE_S, context=tls)
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


async def _check_all(
    check: TokenCheck, port: int, endpoint: str, tls: ssl.SSLContext | None, http_tls: Any
) -> None:
    """Make a call of each kind, without a token and with it."""
    async with Channel(endpoint, tls=tls) as channel:
        with pytest.raises(RpcError, match=REFUSED) as raised:
            await channel.unary(PUT, MESSAGE, timeout=DEADLINE_S)
        assert raised.value.status is Status.UNAUTHENTICATED
        assert await _refused_stream(channel) is Status.UNAUTHENTICATED
    body = {"key": "YQ==", "value": "MQ=="}
    status, answer = await asyncio.to_thread(_post, port, http_tls, "/v3/kv/put", body)
    assert (status, answer["message"]) == (401, REFUSED)
    assert [each.path for each in check.seen] == [PUT, WATCH, PUT]
    check.seen.clear()

    began = monotonic()
    async with Channel(endpoint, tls=tls, metadata={"token": "secret"}) as channel:
        answered = await channel.unary(PUT, MESSAGE, timeout=DEADLINE_S)
        assert pb.PutResponse.FromString(answered).header.revision == 2
        async with channel.stream(WATCH, timeout=DEADLINE_S) as call:
            await call.send(WATCH_A)
            first = await call.receive()
            assert first is not None
            assert pb.WatchResponse.FromString(first).created
    fields = {"authorization": "secret", "grpc_timeout": f"{DEADLINE_S:.0f}S"}
    status, answer = await asyncio.to_thread(_post, port, http_tls, "/v3/kv/put", body, **fields)
    assert (status, answer["header"]["revision"]) == (200, "3")
    assert [each.path for each in check.seen] == [PUT, WATCH, PUT]
    for context in check.seen:
        assert context.peer.address.startswith("127.0.0.1:")
        assert context.deadline is not None
        assert began + DEADLINE_S <= context.deadline <= monotonic() + 1.2 * DEADLINE_S


@both_loops
def test_one_interceptor_checks_every_call_of_both_protocols(run: Run) -> None:
    async def main() -> None:
        check = TokenCheck()
        async with LeaseholdServer(Settings(directory=None), interceptor=check) as server:
            port = await server.start("127.0.0.1", 0)
            await _check_all(check, port, f"127.0.0.1:{port}", None, None)
            assert [each.peer.certificate for each in check.seen] == [None] * 3

    run(main())


@both_loops
def test_an_interceptor_reads_the_certificate_of_the_client(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        for name in ("127.0.0.1", "anna@example.org"):
            made = authority.issue_cert(name)
            made.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
        ca, ours, theirs = (
            tmp_path / name for name in ("ca.pem", "127.0.0.1.pem", "anna@example.org.pem")
        )
        client, plain = client_tls(ca, theirs, theirs), ssl.create_default_context(cafile=str(ca))
        plain.load_cert_chain(theirs)
        check = TokenCheck()
        async with LeaseholdServer(Settings(directory=None), interceptor=check) as server:
            tls = server_tls(ours, ours, ca)
            (bound,) = await server.start_on([TcpAddress("127.0.0.1", 0)], tls)
            assert isinstance(bound, TcpAddress)
            await _check_all(check, bound.port, f"https://127.0.0.1:{bound.port}", client, plain)
            certificates = [each.peer.certificate for each in check.seen]
            assert [_names(each) for each in certificates] == [["anna@example.org"]] * 3

    run(main())


class Trace:
    """Records the end of each call."""

    def __init__(self) -> None:
        self.done: asyncio.Queue[tuple[str, Status]] = asyncio.Queue()

    def __call__(self, context: CallContext) -> DoneCallback:
        return lambda status: self.done.put_nowait((context.path, status))

    async def next(self) -> tuple[str, Status]:
        async with asyncio.timeout(DEADLINE_S):
            return await self.done.get()


@both_loops
def test_an_interceptor_is_called_at_the_end_of_every_call_of_both_protocols(run: Run) -> None:
    async def main() -> None:
        trace = Trace()
        async with LeaseholdServer(Settings(directory=None), interceptor=trace) as server:
            port = await server.start("127.0.0.1", 0)
            async with Channel(f"127.0.0.1:{port}") as channel:
                await channel.unary(PUT, MESSAGE, timeout=DEADLINE_S)
                assert await trace.next() == (PUT, Status.OK)
                with pytest.raises(RpcError):
                    await channel.unary(PUT, b"", timeout=DEADLINE_S)
                assert await trace.next() == (PUT, Status.INVALID_ARGUMENT)
                async with channel.stream(WATCH, timeout=DEADLINE_S) as call:
                    await call.send(WATCH_A)
                    await call.receive()
                    assert trace.done.empty()
                assert await trace.next() == (WATCH, Status.CANCELLED)
            body = {"key": "YQ==", "value": "MQ=="}
            for sent, path, status in (
                (body, PUT, Status.OK),
                ({}, PUT, Status.INVALID_ARGUMENT),
            ):
                await asyncio.to_thread(_post, port, None, "/v3/kv/put", sent)
                assert await trace.next() == (path, status)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            watch = json.dumps({"create_request": {"key": "YQ=="}})
            head = f"POST /v3/watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(watch)}"
            writer.write(f"{head}\r\n\r\n{watch}".encode())
            await reader.readuntil(b"created")
            assert trace.done.empty()
            writer.transport.abort()
            assert await trace.next() == (WATCH, Status.CANCELLED)
        assert trace.done.empty()

    run(main())
