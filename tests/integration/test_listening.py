"""Binding and connecting: TCP and Unix, on both event loops, and what is said if it fails."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import re
import socket
import stat
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from leasehold import ConnectFailed, Status, is_definite
from leasehold.basics.addresses import Address, TcpAddress, UnixAddress, parse_address
from leasehold.basics.sockets import (
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    KEEPALIVE_PROBES,
    resolve,
)
from leasehold.basics.tls import client_tls
from leasehold.grpc.endpoints import dial, plain_words
from leasehold.server.app import LeaseholdServer
from leasehold.serving import listening as listening_module
from leasehold.serving.listening import ListeningSockets, listen
from leasehold.wire import rpc_pb2
from tests.support.echoing import DEADLINE_S, Client, Echo, Run, both_loops

SOON_S: Final = 0.1
"""A time-out that is meant to come."""

LOOPBACK: Final = TcpAddress("127.0.0.1", 0)


@pytest.fixture(autouse=True)
def _leaves_nothing_open() -> Iterator[None]:
    """A socket that was forgotten warns when it is collected, and warnings are errors."""
    yield
    gc.collect()


@contextlib.asynccontextmanager
async def echoing(address: Address) -> AsyncIterator[ListeningSockets]:
    listening = await listen(Echo, address)
    try:
        await listening.start()
        yield listening
    finally:
        listening.close()
        await listening.wait_closed()


async def is_echoed(address: Address) -> bool:
    _, client = await dial(Client, address, timeout_s=DEADLINE_S)
    answer = await client.ask(b"hello")
    await client.hang_up()
    return answer == b"hello"


# Addresses.


@both_loops
def test_the_port_that_was_chosen_is_told(run: Run) -> None:
    async def main() -> None:
        async with echoing(LOOPBACK) as listening:
            (bound,) = listening.addresses
            assert isinstance(bound, TcpAddress)
            assert (bound.host, bound.port > 0) == ("127.0.0.1", True)
            assert await is_echoed(bound)

    run(main())


@both_loops
def test_a_name_is_bound_on_all_its_addresses_with_the_same_port(run: Run) -> None:
    async def main() -> None:
        async with echoing(TcpAddress("localhost", 0)) as listening:
            bound = [each for each in listening.addresses if isinstance(each, TcpAddress)]
            assert {each.host for each in bound} == await _bindable("localhost")
            assert len({each.port for each in bound}) == 1
            for each in bound:
                assert await is_echoed(each)
            assert await is_echoed(TcpAddress("localhost", bound[0].port))

    run(main())


async def _bindable(name: str) -> set[str]:
    """Which addresses of a name this machine has: IPv6 may be switched off."""
    found = set()
    for family, kind, protocol, where in await resolve(TcpAddress(name, 0)):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as sock:
            sock.bind(where)
            found.add(where[0])
    return found


def test_a_port_that_is_taken_on_one_address_of_a_name_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody takes the port that was chosen, on the second address, just before we do."""
    blockers: list[socket.socket] = []
    bind_one = listening_module._bind_one

    def racing(found: Any, port: int) -> socket.socket:
        if port and not blockers:
            blockers.append(bind_one(found, port))
        return bind_one(found, port)

    async def main() -> None:
        monkeypatch.setattr(listening_module, "_bind_one", racing)
        monkeypatch.setattr(listening_module, "resolve", _two_addresses)
        async with echoing(LOOPBACK) as listening:
            ports = {each.port for each in listening.addresses if isinstance(each, TcpAddress)}
            assert len(listening.addresses) == 2
            assert len(ports) == 1
            assert ports != {blockers[0].getsockname()[1]}
        blockers[0].close()

    asyncio.run(main())


async def _two_addresses(address: TcpAddress) -> list[Any]:
    return [*await resolve(address), *await resolve(TcpAddress("127.0.0.2", address.port))]


def test_an_address_that_this_machine_does_not_have_is_left_out_if_there_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def with_a_foreign_one(address: TcpAddress) -> list[Any]:
        return [*await resolve(TcpAddress("192.0.2.1", address.port)), *await resolve(address)]

    async def main() -> None:
        monkeypatch.setattr(listening_module, "resolve", with_a_foreign_one)
        async with echoing(LOOPBACK) as listening:
            assert [str(each).partition(":")[0] for each in listening.addresses] == ["127.0.0.1"]

    asyncio.run(main())


@both_loops
def test_a_taken_port_is_refused_before_anything_is_served(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = TcpAddress("127.0.0.1", taken.getsockname()[1])
            with pytest.raises(OSError, match=r"Address already in use$") as caught:
                await listen(Echo, address)
        assert caught.value.errno == errno.EADDRINUSE
        assert caught.value.strerror == f"cannot listen on {address}: Address already in use"

    run(main())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("192.0.2.1:0", "cannot listen on 192.0.2.1:0: Cannot assign requested address"),
        ("no-such-host.invalid:1", "cannot listen on no-such-host.invalid:1: "),
        ("unix:/no/such/place", "cannot listen on unix:/no/such/place: No such file or directory"),
    ],
)
def test_an_address_that_cannot_be_had_is_one_clear_line(text: str, said: str) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=re.escape(said)) as caught:
            await listen(Echo, parse_address(text))
        assert "\n" not in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize("function", [listen, dial])
def test_what_the_scheme_says_is_done_or_refused(function: Any) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=r"https://localhost:1 requires TLS"):
            await function(Echo, parse_address("https://localhost:1"))
        with pytest.raises(
            ValueError, match=r"http://localhost:1 was given together with a TLS context"
        ):
            await function(Echo, parse_address("http://localhost:1"), client_tls())

    asyncio.run(main())


# Starting and closing.


@both_loops
def test_connections_wait_until_it_is_started(run: Run) -> None:
    async def main() -> None:
        made: asyncio.Queue[Echo] = asyncio.Queue()
        listening = await listen(lambda: Echo(made), LOOPBACK)
        _, client = await dial(Client, listening.addresses[0])
        assert made.empty()
        await listening.start()
        assert await client.ask(b"now?") == b"now?"
        listening.close()
        await client.hang_up()

    run(main())


@both_loops
def test_it_can_be_closed_before_it_was_started(run: Run) -> None:
    async def main() -> None:
        listening = await listen(Echo, LOOPBACK)
        listening.close()
        await listening.wait_closed()
        with pytest.raises(ConnectFailed, match="Connection refused"):
            await dial(Client, listening.addresses[0])

    run(main())


@both_loops
def test_closing_keeps_connections_and_frees_the_address(run: Run) -> None:
    async def main() -> None:
        async with echoing(LOOPBACK) as listening:
            address = listening.addresses[0]
            _, client = await dial(Client, address)
            assert await client.ask(b"before") == b"before"
        listening.close()  # once more does nothing
        assert await client.ask(b"after") == b"after"
        async with echoing(address) as again:
            assert again.addresses == [address]
            assert await is_echoed(address)
        await client.hang_up()

    run(main())


@both_loops
def test_closing_keeps_a_connection_that_has_got_its_protocol_in_the_same_turn(run: Run) -> None:
    class ClosesTheListener(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            opened[0].close()

    opened: list[ListeningSockets] = []

    async def main() -> None:
        listening = await listen(ClosesTheListener, LOOPBACK)
        opened.append(listening)
        await listening.start()
        _, client = await dial(Client, listening.addresses[0])
        assert await client.ask(b"after") == b"after"
        await client.hang_up()
        await listening.wait_closed()

    run(main())


@both_loops
def test_nothing_waits_for_more_to_be_sent(run: Run) -> None:
    """TCP_NODELAY: an answer is on its way when it is written."""

    async def main() -> None:
        made: asyncio.Queue[Echo] = asyncio.Queue()
        listening = await listen(lambda: Echo(made), LOOPBACK)
        await listening.start()
        transport, client = await dial(Client, listening.addresses[0])
        for end in (transport, (await made.get()).transport):
            sock = end.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        listening.close()
        await client.hang_up()

    run(main())


# Unix sockets.


@both_loops
def test_a_unix_socket_is_for_its_owner_and_is_removed_at_the_end(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        async with echoing(UnixAddress(str(path))) as listening:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert listening.addresses == [UnixAddress(str(path))]
            assert await is_echoed(listening.addresses[0])
        assert not path.exists()

    run(main())


def test_a_unix_socket_has_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        listening = await listen(Echo, UnixAddress(str(path)), mode=0o666)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        listening.close()

    asyncio.run(main())


@both_loops
def test_a_stale_unix_socket_is_replaced(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()

    async def main() -> None:
        async with echoing(UnixAddress(str(path))) as listening:
            assert await is_echoed(listening.addresses[0])

    run(main())


@both_loops
def test_a_live_unix_socket_is_refused_and_goes_on(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        address = UnixAddress(str(tmp_path / "socket"))
        async with echoing(address):
            with pytest.raises(OSError, match="Address already in use") as caught:
                await listen(Echo, address)
            assert caught.value.errno == errno.EADDRINUSE
            assert caught.value.strerror == f"cannot listen on {address}: Address already in use"
            assert await is_echoed(address)

    run(main())


def test_a_unix_socket_whose_queue_is_full_is_alive(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> None:
        with pytest.raises(OSError, match="Address already in use"):
            await listen(Echo, UnixAddress(path))
        with pytest.raises(ConnectFailed, match="the listen backlog of the server is full"):
            await dial(Client, UnixAddress(path))

    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(path)
        busy.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(path)
        asyncio.run(main())


@pytest.mark.parametrize("make", ["file", "directory", "link"])
def test_what_is_no_socket_is_never_removed(make: str, tmp_path: Path) -> None:
    path, dead = tmp_path / "socket", tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(dead))
    match make:
        case "file":
            path.write_text("mine")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(dead)
    before = path.lstat()

    async def main() -> None:
        with pytest.raises(OSError, match="the path exists and is not a socket: remove it") as it:
            await listen(Echo, UnixAddress(str(path)))
        assert it.value.errno == errno.EEXIST

    asyncio.run(main())
    assert os.path.samestat(path.lstat(), before)


@both_loops
def test_a_unix_socket_that_is_another_one_by_now_stays_at_the_end(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        async with echoing(UnixAddress(str(path))):
            path.unlink()
            other = await listen(Echo, UnixAddress(str(path)))
            await other.start()
        assert await is_echoed(UnixAddress(str(path)))
        other.close()
        assert not path.exists()

    run(main())


def test_a_relative_unix_socket_is_removed_also_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.chdir(tmp_path)
        async with echoing(UnixAddress("socket")):
            assert await is_echoed(UnixAddress("socket"))
            monkeypatch.chdir("/")
        assert not (tmp_path / "socket").exists()

    asyncio.run(main())


def test_of_many_who_find_a_stale_unix_socket_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    everybody = threading.Barrier(8)
    outcomes: list[int | None] = []

    def compete() -> None:
        async def main() -> None:
            everybody.wait(DEADLINE_S)
            try:
                listening: ListeningSockets | None = await listen(Echo, UnixAddress(str(path)))
            except OSError as error:
                outcomes.append(error.errno)
                listening = None
            everybody.wait(DEADLINE_S)
            if listening is not None:
                outcomes.append(0)
                await listening.start()
                assert await is_echoed(UnixAddress(str(path)))
                listening.close()

        asyncio.run(main())

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(DEADLINE_S)
    assert Counter(outcomes) == {0: 1, errno.EADDRINUSE: 7}
    assert not path.exists()


def test_a_directory_that_others_have_locked_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_module, "LOCK_S", SOON_S)
    address = UnixAddress(str(tmp_path / "socket"))

    async def main() -> None:
        with pytest.raises(OSError, match=r"another process has locked .* for more than 0\.1 s"):
            await listen(Echo, address)

    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        asyncio.run(main())
    finally:
        os.close(fd)


# Connecting.


def _unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@both_loops
def test_a_refusal_says_where_and_why(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        address = TcpAddress("127.0.0.1", _unused_port())
        with pytest.raises(ConnectFailed) as caught:
            await dial(Client, address)
        assert str(caught.value) == f"cannot connect to {address}: Connection refused"
        assert isinstance(caught.value, ConnectionError)
        assert caught.value.status is Status.UNAVAILABLE
        assert not is_definite(caught.value)
        nowhere = UnixAddress(str(tmp_path / "nothing"))
        with pytest.raises(ConnectFailed, match=r"nothing: No such file or directory$"):
            await dial(Client, nowhere)

    run(main())


@both_loops
def test_a_host_that_is_not_known_is_said_to_be_so(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed, match=r"invalid:1: the host cannot be found: \w"):
            await dial(Client, TcpAddress("no-such-host.invalid", 1), timeout_s=DEADLINE_S)

    run(main())


@both_loops
def test_a_server_that_does_not_answer_is_given_up_in_time(run: Run) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as stack:
            busy = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
            where = busy.getsockname()
            for _ in range(4):  # Linux answers nobody once the queue is full
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(where)
            with pytest.raises(ConnectFailed, match=r": no answer within 0\.1 s$"):
                await dial(Client, TcpAddress(*where), timeout_s=SOON_S)

    run(main())


@both_loops
def test_all_addresses_of_a_name_are_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with echoing(LOOPBACK) as listening:
            bound = listening.addresses[0]
            assert isinstance(bound, TcpAddress)
            monkeypatch.setattr("leasehold.grpc.endpoints.resolve", _refusing_first)
            assert await is_echoed(bound)

    run(main())


async def _refusing_first(address: TcpAddress) -> list[Any]:
    return [*await resolve(TcpAddress("127.0.0.2", address.port)), *await resolve(address)]


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
def test_a_timeout_that_is_none_is_a_bad_value(timeout_s: float) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="timeout_s must be more than 0, got"):
            await dial(Client, LOOPBACK, timeout_s=timeout_s)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset"),
        (ConnectionResetError(), "the connection was closed"),
        (EOFError(), "EOFError"),
        (RuntimeError("it broke"), "it broke"),
    ],
)
def test_any_error_has_words(error: Exception, words: str) -> None:
    assert plain_words(error).startswith(words)


# The whole server.


def _put(target: str) -> Any:
    """Write a key with a client that is not ours; the revision of that."""
    with grpc.insecure_channel(target) as channel:
        put = channel.unary_unary(
            "/etcdserverpb.KV/Put",
            rpc_pb2.PutRequest.SerializeToString,
            rpc_pb2.PutResponse.FromString,
        )
        answer = put(rpc_pb2.PutRequest(key=b"k", value=b"v"), timeout=DEADLINE_S)
    return answer.header.revision


@both_loops
def test_a_server_is_on_several_addresses_at_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        async with LeaseholdServer(tmp_path / "data") as server:
            tcp, unix = await server.start_on([LOOPBACK, UnixAddress(str(path))])
            assert await asyncio.to_thread(_put, str(tcp)) == 2
            assert await asyncio.to_thread(_put, str(unix)) == 3
        assert not path.exists()

    run(main())


@both_loops
def test_a_server_that_cannot_have_all_its_addresses_has_none(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        free, path = TcpAddress("127.0.0.1", _unused_port()), tmp_path / "socket"
        path.write_text("mine")
        async with LeaseholdServer(tmp_path / "data") as server:
            with pytest.raises(OSError, match="is not a socket"):
                await server.start_on([free, UnixAddress(str(path))])
            with pytest.raises(ConnectFailed, match="Connection refused"):
                await dial(Client, free)
            with pytest.raises(ValueError, match="at least one address"):
                await server.start_on([])

    run(main())


@both_loops
def test_the_system_finds_out_that_the_peer_of_a_tcp_connection_is_gone(run: Run) -> None:
    """HTTP/1.1 has no pings: without this, a watcher whose machine is gone stays for ever."""

    async def main() -> None:
        made: asyncio.Queue[Echo] = asyncio.Queue()
        listening = await listen(lambda: Echo(made), TcpAddress("127.0.0.1", 0))
        await listening.start()
        _, client = await dial(Client, listening.addresses[0])
        sock = (await made.get()).transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
            ("TCP_USER_TIMEOUT", 120_000),
        ):
            if hasattr(socket, name):
                assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value, name
        await client.hang_up()
        listening.close()
        await listening.wait_closed()

    run(main())
