"""`leasehold.v1.Leases` on a store of its own, in virtual time, without a network."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, DeferredAnswer, ServerStream, StreamHandler, Subscription
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Grant, Put
from leasehold.leases.policies import DEFAULT_POLICIES, Policies
from leasehold.server.etcd.lease import LeaseService
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.leases.service import NONE, PATH, LeasesService
from leasehold.server.leases.service_leases import Grantors
from leasehold.store.runtime import Runtime
from leasehold.testing import current_host, run_virtual
from leasehold.wire import leases_pb2 as pb


async def answer_of(answer: Answer | DeferredAnswer) -> Answer:
    """Wait for an answer that takes a while."""
    found = answer if isinstance(answer, tuple) else await answer
    assert isinstance(found, tuple)
    return found


class FakeStream:
    """A stream whose client takes what it is told while `has_own_room`."""

    def __init__(self) -> None:
        self.has_own_room = True
        self.has_room = True
        self.said: list[pb.WatchLeasesResponse] = []
        self.metadata: tuple[tuple[str, str], ...] = ()
        self.timeout_s: float | None = None

    def send_message(self, message: bytes, position: int) -> None:
        assert position == 0, "what is told is on disk"
        self.said.append(pb.WatchLeasesResponse.FromString(message))

    def flush_soon(self) -> None:
        return

    flush = flush_soon

    @property
    def events(self) -> list[pb.LeaseEvent]:
        return [event for response in self.said for event in response.events]

    @property
    def lagged(self) -> list[int]:
        return [response.lagged for response in self.said if response.lagged]


class Office:
    """The service, committed as it goes or (with `by_hand`) when a test says so."""

    def __init__(
        self,
        policies: Policies = DEFAULT_POLICIES,
        *,
        by_hand: bool = False,
        grantors: Grantors = NONE,
    ) -> None:
        self.runtime = Runtime(None, clock=current_host().clock)
        # It is never started, and has no thread that commits.
        self.runtime.check = lambda: None  # type: ignore[method-assign]
        self.store = self.runtime.store
        self.store.start()
        if not by_hand:
            self.store.on_pending = self._commit_soon
        self.context = ServiceContext(self.runtime, DurabilityGate(), Identity(1, 2, 3))
        self.service = LeasesService(self.context, policies, grantors)
        self.lease = LeaseService(self.context)
        self.methods: Mapping[str, Any] = self.service.methods()

    def _commit_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.commit)

    def commit(self) -> None:
        assert self.store.take_batch() is not None
        self.store.committed()

    async def settled(self) -> None:
        """Wait until everything is on disk."""
        await self.runtime.until_durable(self.store.position)

    async def close(self) -> None:
        await self.runtime.housekeeping.close()
        self.store.leases.close()
        self.runtime.journal.close()

    async def call(self, name: str, request: Any) -> Answer:
        self.store.leases.enter()
        return await answer_of(self.methods[PATH + name].call(request.SerializeToString()))

    async def grant(self, ttl_ms: int = 10_000, **request: Any) -> pb.GrantResponse:
        answer, _ = await self.call("Grant", pb.GrantRequest(ttl_ms=ttl_ms, **request))
        return pb.GrantResponse.FromString(answer)

    async def renew_all(self, *leases: int, **request: Any) -> pb.RenewAllResponse:
        answer, _ = await self.call("RenewAll", pb.RenewAllRequest(ids=leases, **request))
        return pb.RenewAllResponse.FromString(answer)

    async def revoke_all(self, *leases: int, **request: Any) -> pb.RevokeAllResponse:
        answer, _ = await self.call("RevokeAll", pb.RevokeAllRequest(ids=leases, **request))
        return pb.RevokeAllResponse.FromString(answer)

    async def page(self, **request: Any) -> pb.ListResponse:
        answer, _ = await self.call("List", pb.ListRequest(**request))
        return pb.ListResponse.FromString(answer)

    async def listed(self, **request: Any) -> list[pb.ListedLease]:
        found: list[pb.ListedLease] = []
        page = await self.page(**request)
        while page.next_page_token:
            found += page.leases
            page = await self.page(**request, page_token=page.next_page_token)
        return [*found, *page.leases]

    def watch(self, **request: Any) -> tuple[FakeStream, StreamHandler]:
        stream = FakeStream()
        method = self.methods[PATH + "Watch"]
        assert isinstance(method, Subscription)
        handler = method.open(cast("ServerStream", stream))
        handler.message_received(pb.WatchLeasesRequest(**request).SerializeToString())
        return stream, handler

    def put(self, key: bytes, lease: int = 0) -> None:
        self.store.apply(Put(key, b"", lease))

    def grant_many(self, leases: range, ttl_s: float = 60.0, holder: str = "") -> None:
        for lease in leases:
            self.store.apply(Grant(lease, ttl_s, holder))


async def turns(count: int = 5) -> None:
    """Let what was planned for the next turns of the loop happen."""
    for _ in range(count):
        await asyncio.sleep(0)


Test = Callable[[Office], Coroutine[Any, Any, None]]


def in_office(test: Test) -> Callable[[], None]:
    """Run a test in virtual time, with an office."""
    return in_office_with()(test)


def in_office_with(**options: Any) -> Callable[[Test], Callable[[], None]]:
    """Run a test in virtual time, with an office of this kind."""
    return lambda test: _in_office(test, options)


def _in_office(test: Test, options: dict[str, Any]) -> Callable[[], None]:
    async def main() -> None:
        office = Office(**options)
        try:
            await test(office)
        finally:
            await office.close()

    def run() -> None:
        run_virtual(main)

    run.__name__ = test.__name__
    return run


async def refusal(call: Coroutine[Any, Any, Any]) -> RpcError:
    """Return the error that a call is refused with."""
    try:
        await call
    except RpcError as error:
        return error
    raise AssertionError("it was not refused")
