"""TLS on both sides: what RFC 9113 asks for, real clients, and what is said when it fails.

The server is the whole one, the clients are `grpcio`, `http.client`, `ssl` and our own `dial`.
"""

import asyncio
import contextlib
import datetime as dt
import errno
import gc
import http.client
import logging
import re
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from leasehold import ConnectFailed
from leasehold.basics.addresses import Address, TcpAddress, UnixAddress, parse_address
from leasehold.basics.tls import client_tls, server_tls
from leasehold.grpc.endpoints import dial, plain_words
from leasehold.server.app import LeaseholdServer
from leasehold.serving import accepting
from leasehold.serving import grpc_server as serving_module
from leasehold.serving import server_protocol as server_module
from leasehold.serving.grpc_server import GrpcServer
from leasehold.serving.limited_log import LINES
from leasehold.serving.listening import HANDSHAKE_S, SHUTDOWN_S, ListeningSockets, listen
from leasehold.wire import rpc_pb2
from tests.support.echoing import DEADLINE_S, Client, Echo, Run, both_loops

SOON_S: Final = 0.2
"""A time-out that is meant to come."""

TURNS: Final = 100
"""Of a loop: more than it needs to learn what the system knows."""

LOOPBACK: Final = TcpAddress("127.0.0.1", 0)
LOCALHOST: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Pems:
    """Files of a certificate, its key, and who has signed it."""

    cert: Path
    key: Path
    ca: Path


@pytest.fixture(autouse=True)
def _leaves_nothing_open() -> Iterator[None]:
    """A socket that was forgotten warns when it is collected, and warnings are errors."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def issue(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pems]:
    """Issue certificates, each by an authority of its own."""

    def issue(*names: str, **kwargs: Any) -> Pems:
        place, ca = tmp_path_factory.mktemp("pems"), trustme.CA()
        made = ca.issue_cert(*names, **kwargs)
        pems = Pems(place / "cert.pem", place / "key.pem", place / "ca.pem")
        pems.key.write_bytes(made.private_key_pem.bytes())
        pems.cert.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        ca.cert_pem.write_to_path(pems.ca)
        return pems

    return issue


@pytest.fixture(scope="module")
def server(issue: Callable[..., Pems]) -> Pems:
    return issue(*LOCALHOST)


@pytest.fixture(scope="module")
def holder(issue: Callable[..., Pems]) -> Pems:
    return issue("holder@example.org")


@contextlib.asynccontextmanager
async def serving(
    directory: Path, tls: ssl.SSLContext | None, address: Address = LOOPBACK
) -> AsyncIterator[Any]:
    """Run the whole server until its clients are gone; give its address."""
    async with LeaseholdServer(directory / "data") as server:
        (bound,) = await server.start_on([address], tls)
        yield bound
        async with asyncio.timeout(DEADLINE_S):
            await server._server._state.all_gone()


@contextlib.asynccontextmanager
async def echoing(
    tls: ssl.SSLContext, **kwargs: Any
) -> AsyncIterator[tuple[ListeningSockets, Any]]:
    listening = await listen(Echo, LOOPBACK, tls, **kwargs)
    await listening.start()
    try:
        yield listening, listening.addresses[0]
    finally:
        listening.close()
        await listening.wait_closed()


def put(target: str, credentials: grpc.ChannelCredentials | None = None) -> Any:
    """Write a key with a client that is not ours; what came of it."""
    options = [("grpc.default_authority", "localhost")] if target.startswith("unix:") else []
    with (
        grpc.insecure_channel(target, options)
        if credentials is None
        else grpc.secure_channel(target, credentials, options)
    ) as channel:
        call = channel.unary_unary(
            "/etcdserverpb.KV/Put",
            rpc_pb2.PutRequest.SerializeToString,
            rpc_pb2.PutResponse.FromString,
        )
        try:
            call(rpc_pb2.PutRequest(key=b"k", value=b"v"), timeout=DEADLINE_S)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def credentials(server: Pems, client: Pems | None = None) -> grpc.ChannelCredentials:
    if client is None:
        return grpc.ssl_channel_credentials(server.ca.read_bytes())
    return grpc.ssl_channel_credentials(
        server.ca.read_bytes(), client.key.read_bytes(), client.cert.read_bytes()
    )


def shake_hands(address: TcpAddress, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Connect with nothing but the standard library; blocks."""
    plain = socket.create_connection((address.host, address.port), DEADLINE_S)
    try:
        return context.wrap_socket(plain, server_hostname="localhost")
    except BaseException:
        plain.close()
        raise


# The contexts: RFC 9113, section 9.2.


@pytest.fixture(params=["server", "client"])
def context(request: pytest.FixtureRequest, server: Pems) -> ssl.SSLContext:
    return server_tls(server.cert, server.key) if request.param == "server" else client_tls()


def test_9_2_tls_is_1_2_or_newer(context: ssl.SSLContext) -> None:
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.MAXIMUM_SUPPORTED


def test_9_2_1_there_is_no_compression_and_no_renegotiation(context: ssl.SSLContext) -> None:
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_9_2_2_key_exchange_is_ephemeral_and_ciphers_are_aead(context: ssl.SSLContext) -> None:
    suites = context.get_ciphers()
    old = [suite for suite in suites if suite["protocol"] != "TLSv1.3"]
    assert all(suite["aead"] for suite in suites)
    assert all(suite["kea"] == "kx-ecdhe" for suite in old)
    assert "ECDHE-RSA-AES128-GCM-SHA256" in {suite["name"] for suite in old}


def test_9_2_3_nobody_is_asked_for_a_certificate_after_the_handshake(
    context: ssl.SSLContext,
) -> None:
    assert not context.post_handshake_auth


def test_a_client_checks_certificate_and_name() -> None:
    context = client_tls()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


# The files.

MAKERS: Final[dict[str, Callable[[Pems, Path], object]]] = {
    "the certificate": lambda pems, bad: server_tls(bad, pems.key),
    "the key": lambda pems, bad: server_tls(pems.cert, bad),
    "the authorities' certificates": lambda pems, bad: server_tls(pems.cert, pems.key, bad),
    "a client's authorities' certificates": lambda _, bad: client_tls(bad),
    "a client's certificate": lambda pems, bad: client_tls(cert=bad, key=pems.key),
    "a client's key": lambda pems, bad: client_tls(cert=pems.cert, key=bad),
}
each_file = pytest.mark.parametrize("what", MAKERS)


@each_file
def test_a_file_that_is_missing_is_named(what: str, server: Pems, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(FileNotFoundError, match="cannot be read: No such file") as caught:
        MAKERS[what](server, missing)
    assert caught.value.filename == str(missing)
    assert what.removeprefix("a client's ") in "the " + str(caught.value)


@each_file
def test_a_directory_instead_of_a_file_is_named(what: str, server: Pems, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        MAKERS[what](server, tmp_path)
    assert caught.value.filename == str(tmp_path)


@each_file
@pytest.mark.parametrize("content", [b"", b"hello\n", bytes(range(256))])
def test_a_pem_that_is_none_is_refused_with_what_would_be_right(
    what: str, content: bytes, server: Pems, tmp_path: Path
) -> None:
    none = tmp_path / "none.pem"
    none.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"none\.pem .*contains something else: .* a line -----BEGIN"
    ):
        MAKERS[what](server, none)


@each_file
def test_a_pem_that_is_damaged_is_refused(what: str, server: Pems, tmp_path: Path) -> None:
    kind = "PRIVATE KEY" if "key" in what else "CERTIFICATE"
    damaged = tmp_path / "damaged.pem"
    damaged.write_text(f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n")
    with pytest.raises(ValueError, match=r"damaged\.pem .*cannot be used .*may be damaged"):
        MAKERS[what](server, damaged)


def test_key_and_certificate_that_were_swapped_are_told_apart(server: Pems) -> None:
    with pytest.raises(ValueError, match="given as the certificate, but contains a private key"):
        server_tls(server.key, server.cert)
    with pytest.raises(ValueError, match="given as the key, but contains a certificate"):
        server_tls(server.cert, server.cert)


def test_a_key_of_another_certificate_is_refused(server: Pems, holder: Pems) -> None:
    with pytest.raises(ValueError, match="does not match the certificate") as caught:
        server_tls(server.cert, holder.key)
    assert str(server.cert) in str(caught.value)
    assert str(holder.key) in str(caught.value)


@pytest.mark.parametrize(
    "form",
    [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL],
)
def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    form: serialization.PrivateFormat, server: Pems, tmp_path: Path
) -> None:
    key = serialization.load_pem_private_key(server.key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"secret")
        )
    )
    with pytest.raises(ValueError, match=r"locked\.pem is encrypted.*openssl pkey"):
        server_tls(server.cert, locked)


def test_certificate_and_key_may_be_in_one_file(server: Pems, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(server.key.read_bytes() + server.cert.read_bytes())
    server_tls(both, both)


def test_a_client_has_certificate_and_key_or_neither(holder: Pems) -> None:
    with pytest.raises(ValueError, match="certificate was given without its key: give both"):
        client_tls(cert=holder.cert)
    with pytest.raises(ValueError, match="key was given without its certificate: give both"):
        client_tls(key=holder.key)


# A server with TLS.


@both_loops
def test_grpcio_calls_over_tls(run: Run, server: Pems, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, server_tls(server.cert, server.key)) as address:
            said = await asyncio.to_thread(put, str(address), credentials(server))
            assert said is grpc.StatusCode.OK

    run(main())


@both_loops
def test_grpcio_calls_over_tls_on_a_unix_socket(run: Run, server: Pems, tmp_path: Path) -> None:
    async def main() -> None:
        at = UnixAddress(str(tmp_path / "socket"))
        async with serving(tmp_path, server_tls(server.cert, server.key), at) as address:
            said = await asyncio.to_thread(put, str(address), credentials(server))
            assert said is grpc.StatusCode.OK
            _, client = await dial(Client, address, client_tls(server.ca))
            await client.hang_up()

    run(main())


@both_loops
def test_a_client_certificate_is_required_if_there_is_somebody_to_sign_it(
    run: Run, server: Pems, holder: Pems, tmp_path: Path
) -> None:
    async def main() -> None:
        tls = server_tls(server.cert, server.key, holder.ca)
        async with serving(tmp_path, tls) as address:
            for identity, expected in [
                (None, grpc.StatusCode.UNAVAILABLE),
                (server, grpc.StatusCode.UNAVAILABLE),  # signed by another
                (holder, grpc.StatusCode.OK),
            ]:
                said = await asyncio.to_thread(put, str(address), credentials(server, identity))
                assert said is expected

    run(main())


@both_loops
def test_a_plain_client_of_a_server_with_tls_fails_and_the_server_lives(
    run: Run, server: Pems, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(tmp_path, server_tls(server.cert, server.key)) as address:
            assert await asyncio.to_thread(put, str(address)) is grpc.StatusCode.UNAVAILABLE
            said = await asyncio.to_thread(put, str(address), credentials(server))
            assert said is grpc.StatusCode.OK

    with caplog.at_level(logging.WARNING):
        run(main())
    assert not caplog.records


@both_loops
def test_a_client_with_tls_of_a_plain_server_is_told_so_and_the_server_lives(
    run: Run, server: Pems, tmp_path: Path
) -> None:
    async def main() -> None:
        async with serving(tmp_path, None) as address:
            said = await refused(address, client_tls(server.ca), timeout_s=DEADLINE_S)
            assert re.search(r"not use TLS on this port", said)
            assert await asyncio.to_thread(put, str(address)) is grpc.StatusCode.OK

    run(main())


@both_loops
def test_who_chooses_http_1_1_gets_it(run: Run, server: Pems, tmp_path: Path) -> None:
    def get(address: TcpAddress) -> tuple[str | None, int]:
        context = client_tls(server.ca)
        context.set_alpn_protocols(["http/1.1"])
        connection = http.client.HTTPSConnection(
            address.host, address.port, context=context, timeout=DEADLINE_S
        )
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            sock = connection.sock
            assert isinstance(sock, ssl.SSLSocket)
            return sock.selected_alpn_protocol(), connection.getresponse().status

    async def main() -> None:
        async with serving(tmp_path, server_tls(server.cert, server.key)) as address:
            assert await asyncio.to_thread(get, address) == ("http/1.1", 200)

    run(main())


def _old(server: Pems) -> ssl.SSLContext:
    context = client_tls(server.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    _set_versions(context, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1)
    return context


def _set_versions(context: ssl.SSLContext, low: ssl.TLSVersion, high: ssl.TLSVersion) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that is what the tests are about
        context.minimum_version, context.maximum_version = low, high


def _weak(suites: str) -> Callable[[Pems], ssl.SSLContext]:
    def make(server: Pems) -> ssl.SSLContext:
        context = client_tls(server.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(suites)
        return context

    return make


@both_loops
@pytest.mark.parametrize(
    "make",
    [_old, _weak("ECDHE+AES+SHA256:ECDHE+AES+SHA:!AESGCM"), _weak("kRSA+AESGCM")],
    ids=["TLS 1.1", "no AEAD", "not ephemeral"],
)
def test_9_2_weaker_clients_are_refused(
    run: Run, make: Callable[[Pems], ssl.SSLContext], issue: Callable[..., Pems]
) -> None:
    rsa = issue(*LOCALHOST, key_type=trustme.KeyType.RSA)  # which all of these suites can use
    lax, client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), make(rsa)
    lax.load_cert_chain(rsa.cert, rsa.key)
    lax.set_ciphers("ALL:@SECLEVEL=0")
    _set_versions(lax, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2)

    async def main() -> None:
        async with echoing(lax) as (_, address):
            (await asyncio.to_thread(shake_hands, address, client_context)).close()
        async with echoing(server_tls(rsa.cert, rsa.key)) as (_, address):
            with pytest.raises(OSError, match=r"ALERT|EOF|reset"):  # loops send no alert
                await asyncio.to_thread(shake_hands, address, client_context)
            _, client = await dial(Client, address, client_tls(rsa.ca))
            assert await client.ask(b"alive?") == b"alive?"
            await client.hang_up()

    run(main())


@both_loops
def test_a_handshake_that_never_comes_is_cut_off(run: Run, server: Pems) -> None:
    def wait_for_the_end(address: TcpAddress) -> bytes:
        with socket.create_connection((address.host, address.port), DEADLINE_S) as silent:
            return silent.recv(1)

    async def main() -> None:
        tls = server_tls(server.cert, server.key)
        async with echoing(tls, handshake_s=SOON_S) as (_, address):
            assert await asyncio.to_thread(wait_for_the_end, address) == b""

    run(main())


@both_loops
def test_a_handshake_that_ends_after_the_closing_lets_nobody_in(run: Run, server: Pems) -> None:
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    async def main() -> None:
        listening = await listen(make, LOOPBACK, server_tls(server.cert, server.key))
        await listening.start()
        (address,) = listening.addresses
        assert isinstance(address, TcpAddress)
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_tls(server.ca).wrap_bio(inward, outward, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        async with asyncio.timeout(DEADLINE_S):
            writer.write(outward.read())  # hello
            inward.write(await reader.read(65536))  # so the handshake has begun
            listening.close()
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
                    break
                inward.write(await reader.read(65536))
            writer.write(outward.read())
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    run(main())
    assert not made


@both_loops
def test_a_server_that_closes_does_not_wait_for_half_a_handshake_but_cuts_it_off(
    run: Run, server: Pems, tmp_path: Path
) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            async with serving(tmp_path, server_tls(server.cert, server.key)) as address:
                _, silent = await dial(Client, address)
                said = await asyncio.to_thread(put, str(address), credentials(server))
                assert said is grpc.StatusCode.OK  # so the silent one was accepted, too
        async with asyncio.timeout(HANDSHAKE_S / 2):
            await silent.lost

    run(main())


@both_loops
@pytest.mark.parametrize("is_reset", [True, False])
def test_a_server_that_closes_does_not_wait_for_who_dropped_the_connection_meanwhile(
    run: Run, server: Pems, monkeypatch: pytest.MonkeyPatch, *, is_reset: bool
) -> None:
    """Without a word of HTTP/2, and without the good-bye of TLS."""
    for name, module in (("MAX_LINGER_S", server_module), ("PART_S", serving_module)):
        monkeypatch.setattr(module, name, 10 * DEADLINE_S)

    async def main() -> None:
        serves = GrpcServer({})
        (address,) = await serves.start([LOOPBACK], server_tls(server.cert, server.key))
        assert isinstance(address, TcpAddress)
        client = await asyncio.to_thread(shake_hands, address, client_tls(server.ca))
        async with asyncio.timeout(DEADLINE_S):
            while not serves.connections:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await serves.stop_taking()
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        else:
            client.shutdown(socket.SHUT_WR)
        for _ in range(TURNS):  # so the loop knows of it before the server parts
            await asyncio.sleep(0)
        begun = asyncio.get_running_loop().time()
        async with asyncio.timeout(DEADLINE_S):
            await serves.part("the server stops")
        assert asyncio.get_running_loop().time() - begun < SHUTDOWN_S
        assert serves.connections == 0
        client.close()

    run(main())


@both_loops
def test_of_too_many_silent_clients_the_oldest_are_closed_and_an_honest_client_comes_in(
    run: Run,
    server: Pems,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    most, beyond = 20, 30
    monkeypatch.setattr(accepting, "MAX_SILENT", most)

    async def main() -> None:
        async with echoing(server_tls(server.cert, server.key)) as (_, address):
            silent = [(await dial(Client, address))[1] for _ in range(most + beyond)]
            async with asyncio.timeout(DEADLINE_S):
                while sum(client.lost.done() for client in silent) < beyond:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert [client.lost.done() for client in silent[beyond:]] == [False] * most
                _, honest = await dial(Client, address, client_tls(server.ca))
                assert await honest.ask(b"me?") == b"me?"
                for client in (honest, *silent):
                    if not client.lost.done():
                        await client.hang_up()

    with caplog.at_level(logging.WARNING):
        run(main())
    said = {record.getMessage() for record in caplog.records}
    assert said == {f"{most} clients have not begun their TLS handshake: closing the oldest"}
    assert len(caplog.records) == LINES.burst


@both_loops
def test_a_handshake_that_has_begun_is_not_given_up_for_newcomers(
    run: Run, server: Pems, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a storm of reconnects the newest wait; those whose work is nearly done go on."""
    monkeypatch.setattr(accepting, "MAX_HANDSHAKES", 1)

    async def main() -> None:
        tls = client_tls(server.ca)
        async with echoing(server_tls(server.cert, server.key)) as (_, address):
            assert isinstance(address, TcpAddress)
            inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
            first = tls.wrap_bio(inward, outward, server_hostname="localhost")
            with pytest.raises(ssl.SSLWantReadError):
                first.do_handshake()
            reader, writer = await asyncio.open_connection(address.host, address.port)
            async with asyncio.timeout(DEADLINE_S):
                writer.write(outward.read())
                inward.write(await reader.read(65536))
                newcomers = [asyncio.create_task(dial(Client, address, tls)) for _ in range(20)]
                done, _ = await asyncio.wait(newcomers, timeout=SOON_S)
                assert not done
                while True:
                    with contextlib.suppress(ssl.SSLWantReadError):
                        first.do_handshake()
                        break
                    inward.write(await reader.read(65536))
                first.write(b"in?")
                writer.write(outward.read())
                for _, client in await asyncio.gather(*newcomers):
                    await client.hang_up()
            writer.close()

    run(main())


@both_loops
def test_a_connection_that_is_established_is_no_handshake_under_way(
    run: Run, server: Pems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "MAX_HANDSHAKES", 1)

    async def main() -> None:
        async with echoing(server_tls(server.cert, server.key)) as (_, address):
            clients = []
            for _ in range(5):
                _, client = await dial(Client, address, client_tls(server.ca))
                assert await client.ask(b"in?") == b"in?"
                clients.append(client)
            for client in clients:
                await client.hang_up()

    run(main())


@both_loops
def test_when_the_system_has_no_room_for_connections_they_are_taken_later(
    run: Run,
    server: Pems,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(accepting, "EXHAUSTED_S", 0.01)

    class Exhausted(socket.socket):
        """Fails to take the first three connections, as if there were no file left."""

        failures = 3

        def accept(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def main() -> None:
        listening = await listen(Echo, LOOPBACK, server_tls(server.cert, server.key))
        [sock] = listening._sockets
        listening._sockets[:] = [Exhausted(fileno=sock.detach())]
        await listening.start()
        _, client = await dial(Client, listening.addresses[0], client_tls(server.ca))
        assert await client.ask(b"in?") == b"in?"
        await client.hang_up()
        listening.close()
        await listening.wait_closed()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "no connection can be accepted: Too many open files"
    ] * 3


# A client with TLS.


@both_loops
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_we_connect_with_tls_and_http_2(run: Run, host: str, server: Pems) -> None:
    async def main() -> None:
        async with echoing(server_tls(server.cert, server.key)) as (_, address):
            at = parse_address(f"https://{host}:{address.port}")
            transport, client = await dial(Client, at, client_tls(server.ca))
            assert await client.ask(b"hello") == b"hello"
            assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            await client.hang_up()

    run(main())


async def refused(address: Address, tls: ssl.SSLContext, **kwargs: Any) -> str:
    """Fail to connect; why."""

    def never() -> Client:
        raise AssertionError("there is no connection to make a protocol for")

    with pytest.raises(ConnectFailed) as caught:
        await dial(never, address, tls, **kwargs)
    said = str(caught.value)
    assert said.startswith(f"cannot connect to {address}: ")
    assert "\n" not in said
    return said.removeprefix(f"cannot connect to {address}: ")


@both_loops
def test_a_certificate_for_another_name_is_refused(run: Run, issue: Callable[..., Pems]) -> None:
    pems = issue("example.org")

    async def main() -> None:
        async with echoing(server_tls(pems.cert, pems.key)) as (_, address):
            tls = client_tls(pems.ca)
            said = await refused(address, tls)
            assert said == "the certificate is not valid for the name '127.0.0.1'"
            said = await refused(address, tls, server_name="example.com")
            assert said == "the certificate is not valid for the name 'example.com'"
            _, client = await dial(Client, address, tls, server_name="example.org")
            await client.hang_up()

    run(main())


@both_loops
def test_a_certificate_of_somebody_else_is_refused(run: Run, server: Pems, holder: Pems) -> None:
    async def main() -> None:
        async with echoing(server_tls(server.cert, server.key)) as (_, address):
            expected = "the certificate is not signed by a trusted authority"
            assert await refused(address, client_tls(holder.ca)) == expected
            assert await refused(address, client_tls()) == expected

    run(main())


@both_loops
def test_an_expired_certificate_is_refused(run: Run, issue: Callable[..., Pems]) -> None:
    pems = issue(*LOCALHOST, not_after=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))

    async def main() -> None:
        async with echoing(server_tls(pems.cert, pems.key)) as (_, address):
            assert await refused(address, client_tls(pems.ca)) == "the certificate has expired"

    run(main())


@both_loops
@pytest.mark.parametrize("protocols", [[], ["http/1.1"]])
def test_a_server_that_does_not_choose_http_2_is_refused(
    run: Run, protocols: list[str], server: Pems
) -> None:
    async def main() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(server.cert, server.key)
        if protocols:
            tls.set_alpn_protocols(protocols)
        async with echoing(tls) as (_, address):
            said = await refused(address, client_tls(server.ca))
            assert said.startswith("the server does not support HTTP/2 over TLS")

    run(main())


class Saying(Echo):
    """Says the same to everything, and hangs up."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.answer)
        self.transport.close()


def _alert(number: int) -> bytes:
    return bytes((21, 3, 3, 0, 2, 2, number))  # a record of TLS 1.2: fatal


@both_loops
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server does not use TLS on this port"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "the server does not use TLS on this port"),
        (b"", "the server closed the connection during the TLS handshake"),
        (_alert(40), "the server refused the handshake: it may require a client certificate"),
        (_alert(42), "the client certificate is missing or was refused"),
        (_alert(70), "the server does not support TLS 1.2 or newer"),
        (_alert(112), "the server does not have that name"),
        (_alert(116), "a client certificate is required"),
        (_alert(120), "the server does not support HTTP/2 over TLS"),
    ],
)
def test_what_a_server_answers_to_a_handshake_is_put_into_words(
    run: Run, answer: bytes, said: str, server: Pems
) -> None:
    async def main() -> None:
        listening = await listen(lambda: Saying(answer), LOOPBACK)
        await listening.start()
        heard = await refused(listening.addresses[0], client_tls(server.ca))
        listening.close()
        assert heard.startswith(said)

    run(main())


@both_loops
def test_a_server_that_does_not_shake_hands_is_given_up_in_time(run: Run, server: Pems) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = TcpAddress("127.0.0.1", silent.getsockname()[1])
            said = await refused(address, client_tls(server.ca), timeout_s=SOON_S)
            assert said == "no answer within 0.2 s to the TLS handshake"

    run(main())


@contextlib.contextmanager
def strict(tls: ssl.SSLContext) -> Iterator[TcpAddress]:
    """Shake hands with one client in a thread, as OpenSSL does it: it says why it refuses one."""

    def serve_one(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with plain, contextlib.suppress(OSError), tls.wrap_socket(plain, server_side=True) as one:
            one.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_one, args=(listener,))
        thread.start()
        yield TcpAddress("127.0.0.1", listener.getsockname()[1])
        thread.join(DEADLINE_S)


@both_loops
def test_a_client_without_the_certificate_that_is_wanted_is_told_so(
    run: Run, server: Pems, holder: Pems
) -> None:
    """In TLS 1.2 as the answer to the handshake; in 1.3 the client has been let in by then."""
    tls = server_tls(server.cert, server.key, holder.ca)
    old = client_tls(server.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    async def main() -> None:
        with strict(tls) as address:
            assert "it may require a client certificate" in await refused(address, old)
        with strict(tls) as address:
            _, client = await dial(Client, address, client_tls(server.ca))
            async with asyncio.timeout(DEADLINE_S):
                error = await client.lost
            assert error is not None
            assert plain_words(error) == "a client certificate is required"

    run(main())


@both_loops
def test_our_own_server_hangs_up_on_a_client_without_the_certificate_that_it_wants(
    run: Run, server: Pems, holder: Pems
) -> None:
    async def main() -> None:
        async with echoing(server_tls(server.cert, server.key, holder.ca)) as (_, address):
            old = client_tls(server.ca)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            assert "it may require a client certificate" in await refused(address, old)
            _, client = await dial(Client, address, client_tls(server.ca))
            async with asyncio.timeout(DEADLINE_S):
                await client.lost
            known = client_tls(server.ca, holder.cert, holder.key)
            _, client = await dial(Client, address, known)
            assert await client.ask(b"now?") == b"now?"
            await client.hang_up()

    run(main())


@pytest.mark.parametrize("name", ["", ".example.org", "a" * 300])
def test_a_name_that_no_server_can_have_is_a_bad_value(name: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="not a valid server name"):
            await dial(Client, LOOPBACK, client_tls(), server_name=name)

    asyncio.run(main())
