"""Leases over real processes: holders and landlords that are killed, and a server that restarts."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.wire import leases_pb2 as pb
from leasehold.wire import rpc_pb2 as rpc
from tests.support.servers import HOST, RunningServer, free_port, leasehold_command, running

PATH = "/leasehold.v1.Leases/"
HERE = Path(__file__).parent
DEADLINE_S = 30.0
CALLS_S = 120.0
"""How long very many calls may take on a starved machine."""
ENOUGH_MS = 3_000
"""A term that leaves a starved test the time for a few calls."""
HOLDER_TERMS_S = (0.5, 3.0, 10.0)
"""The longer ones are for a starved holder."""
LONG_MS = 600_000
"""A term that no starved test reaches the end of."""


class Program:
    """A process that says what it does, line by line."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603  our own programs
            [sys.executable, "-W", "error", *command], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def program(name: str, *arguments: str) -> Iterator[Program]:
    started = Program(str(HERE / name), *arguments)
    try:
        yield started
    finally:
        started.end()


def test_the_lease_of_a_holder_that_is_killed_expires() -> None:
    with program("v1_landlord.py", f"{HOST}:0") as landlord:
        address = landlord.line()
        with program("v1_holder.py", address, "desk") as holder:
            assert holder.line() == "holds it"
            time.sleep(1.0)  # two terms
            holder.end()
        assert landlord.line() == "desk: expired"


def test_a_holder_learns_that_its_landlord_was_killed_and_started_again() -> None:
    with program("v1_landlord.py", f"{HOST}:{free_port()}") as landlord:
        address = landlord.line()
        with program("v1_holder.py", address, "desk") as holder:
            assert holder.line() == "holds it"
            landlord.end()
            with program("v1_landlord.py", address) as another:
                another.line()
                lost = holder.line()
    # It may have come back only after the lease had run out, as far as its holder knows.
    assert lost.startswith(("lost: UnknownLease", "lost: Connect", "lost: TimeoutError"))


def test_a_holder_whose_landlord_is_away_gives_up_when_its_lease_has_run_out() -> None:
    for term_s in HOLDER_TERMS_S:
        with program("v1_landlord.py", f"{HOST}:0") as landlord:
            address = landlord.line()
            with program("v1_holder.py", address, "desk", str(term_s)) as holder:
                assert holder.line() == "holds it"
                landlord.end()
                killed_at = time.monotonic()
                lost = holder.line()
                assert time.monotonic() - killed_at < DEADLINE_S
        if is_unreachable := lost.startswith(("lost: Connect", "lost: TimeoutError")):
            break  # else it was lost before
    assert is_unreachable, lost


# The server


async def call(channel: Channel, method: str, request: Any, kind: Any) -> Any:
    return kind.FromString(await channel.unary(PATH + method, request.SerializeToString()))


async def grant(channel: Channel, **request: Any) -> pb.GrantResponse:
    answer: pb.GrantResponse = await call(
        channel, "Grant", pb.GrantRequest(**request), pb.GrantResponse
    )
    return answer


def on(server: RunningServer, talk: Callable[[Channel], Any]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(CALLS_S), Channel(server.endpoint) as channel:
            return await talk(channel)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(leasehold_command, tmp_path_factory.mktemp("v1")) as started:
        yield started


def test_a_watcher_sees_a_lease_come_be_renewed_and_go_with_its_keys(
    server: RunningServer,
) -> None:
    async def talk(channel: Channel) -> list[pb.WatchLeasesResponse]:
        request = pb.WatchLeasesRequest(holder="anna", renewals=True)
        said = []
        async with channel.stream(PATH + "Watch") as stream:
            await stream.send(request.SerializeToString())
            stream.end()
            said.append(pb.WatchLeasesResponse.FromString(await _next(stream)))
            lease = (await grant(channel, ttl_ms=ENOUGH_MS, holder="anna")).id
            await grant(channel, ttl_ms=ENOUGH_MS, holder="bert")
            renewal = pb.RenewAllRequest(ids=[lease])
            await call(channel, "RenewAll", renewal, pb.RenewAllResponse)
            put = rpc.PutRequest(key=b"v1/a", lease=lease)
            await channel.unary("/etcdserverpb.KV/Put", put.SerializeToString())
            while not said[-1].events or said[-1].events[-1].kind != pb.LeaseEvent.EXPIRED:
                said.append(pb.WatchLeasesResponse.FromString(await _next(stream)))
        return said

    created, *rest = on(server, talk)
    assert created.created
    events = [event for response in rest for event in response.events]
    kinds = [pb.LeaseEvent.Kind.Name(event.kind) for event in events]
    assert kinds == ["GRANTED", "RENEWED", "EXPIRED"]
    assert {event.holder for event in events} == {"anna"}
    assert (list(events[-1].keys), events[-1].keys_count) == ([b"v1/a"], 1)
    assert events[-1].revision > created.header.revision


async def _next(stream: Any) -> bytes:
    message: bytes | None = await stream.receive()
    assert message is not None
    return message


def test_very_many_leases_are_granted_renewed_listed_and_revoked(
    server: RunningServer,
) -> None:
    ids = range(10**6, 10**6 + 5_000)

    async def talk(channel: Channel) -> None:
        grants = (grant(channel, ttl_ms=LONG_MS, id=lease, holder="many") for lease in ids)
        await asyncio.gather(*grants)
        batch = [*ids] * 10
        renewed = await call(
            channel, "RenewAll", pb.RenewAllRequest(ids=batch), pb.RenewAllResponse
        )
        assert (renewed.ttl_ms, len(renewed.others), len(renewed.unknown)) == (LONG_MS, 0, 0)
        found: list[int] = []
        request = pb.ListRequest(holder="many", page_size=1_999)
        page = await call(channel, "List", request, pb.ListResponse)
        while True:
            found += [each.id for each in page.leases]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
            page = await call(channel, "List", request, pb.ListResponse)
        assert found == list(ids)
        revoked = await call(
            channel, "RevokeAll", pb.RevokeAllRequest(ids=batch), pb.RevokeAllResponse
        )
        assert len(revoked.unknown) == len(batch) - len(ids)
        page = await call(channel, "List", pb.ListRequest(holder="many"), pb.ListResponse)
        assert not page.leases

    on(server, talk)


def test_errors_are_in_words_of_our_own(server: RunningServer) -> None:
    async def talk(channel: Channel) -> None:
        for request, status, text in (
            (pb.GrantRequest(), Status.INVALID_ARGUMENT, "ttl_ms must be at least 1"),
            (pb.GrantRequest(ttl_ms=1, policy="x"), Status.INVALID_ARGUMENT, "unknown policy 'x'"),
        ):
            with pytest.raises(RpcError, match=text) as refused:
                await call(channel, "Grant", request, pb.GrantResponse)
            assert refused.value.status is status
            assert "etcdserver" not in refused.value.message

    on(server, talk)


def test_holders_and_terms_are_known_after_a_server_was_killed(tmp_path: Path) -> None:
    def command(_: Path, port: int) -> list[str]:
        return leasehold_command(tmp_path / "kept", port)

    with contextlib.ExitStack() as servers:
        first = servers.enter_context(running(command, tmp_path))
        on(first, lambda channel: grant(channel, ttl_ms=45_500, id=7, holder="anna"))
        first.process.kill()
        first.process.wait(DEADLINE_S)
        servers.pop_all()  # it has ended, as it was to
    with running(command, tmp_path) as second:
        request = pb.ListRequest()
        page = on(second, lambda channel: call(channel, "List", request, pb.ListResponse))
    (lease,) = page.leases
    assert (lease.id, lease.ttl_ms, lease.holder) == (7, 45_500, "anna")
    assert 0 < lease.remaining_ms <= 45_500
