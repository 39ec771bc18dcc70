"""Lock and Election on a store that is committed by hand, with callers that are plain objects.

For virtual time: a `Shop` is made within `run_virtual`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar, cast

import pytest
from google.protobuf.message import Message

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import (
    Answer,
    DeferredAnswer,
    Method,
    ServerStream,
    StreamHandler,
    Subscription,
)
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Grant, Op
from leasehold.server.etcd.lock_and_election import ElectionService, LockService
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store import runtime as runtimes
from leasehold.store.runtime import Runtime
from leasehold.testing import current_host, run_virtual
from leasehold.wire import election_pb2 as epb
from leasehold.wire import lock_pb2 as lpb
from tests.property.engine_kit import HandCommitter

T = TypeVar("T")
R = TypeVar("R", bound=Message)

TURNS_MAX: Final = 10_000


class Caller(Generic[R]):
    """A call of a subscription: its messages, with the positions they wait for."""

    def __init__(self, method: Method, request: Message, response_type: type[R]) -> None:
        assert isinstance(method, Subscription)
        self.response_type = response_type
        self.said: list[tuple[R, int]] = []
        self.error: RpcError | None = None
        self.is_ended = False
        self.is_gone = False
        self.has_room = True
        self._handler: StreamHandler = method.open(
            cast(ServerStream, self)
        )  # as much of one as is needed
        try:
            self._handler.message_received(request.SerializeToString())
            self._handler.ended()
        except RpcError as error:
            self.end(error)

    def send_message(self, message: bytes, position: int) -> None:
        assert not self.is_ended
        self.said.append((self.response_type.FromString(message), position))

    def answer_and_end(self, message: bytes, position: int) -> None:
        self.send_message(message, position)
        self.end()

    def end(self, error: RpcError | None = None) -> None:
        assert not self.is_ended, "a call ends once"
        self.is_ended, self.error = True, error

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, RpcError):
            raise error
        self.end(error)

    def flush_soon(self) -> None:
        """Do nothing: the data is already sent."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has neither ended nor been cancelled."""
        return not (self.is_ended or self.is_gone)

    @property
    def answer(self) -> R:
        """The message it received, if there was only one."""
        [(answer, _)] = self.said
        assert self.is_ended
        assert self.error is None
        return answer

    @property
    def position(self) -> int:
        """What must be durable before the end may be known."""
        assert self.is_ended
        return self.said[0][1] if self.error is None else self.error.position

    def go(self) -> None:
        """Leave, or stop because the run is over."""
        if not self.is_gone:
            self.is_gone = True
            self._handler.gone()

    def relieve(self) -> None:
        """Have room again."""
        self.has_room = True
        self._handler.relieved()


class Shop:
    """The services, and a disk under the control of the test."""

    def __init__(self) -> None:
        self.runtime = Runtime(None, clock=current_host().clock)
        self.store = self.runtime.store
        self.gate = DurabilityGate()
        self.runtime.waiting.on_durable = self.gate.release
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtimes, "Committer", HandCommitter)
            self.runtime.start()
        self.context = ServiceContext(self.runtime, self.gate, Identity(1, 2, 3))
        self.locks, self.elections = LockService(self.context), ElectionService(self.context)
        self._methods = {**self.locks.methods(), **self.elections.methods()}

    def commit(self) -> None:
        """Have the disk take what there is."""
        if self.store.take_batch() is not None:
            self.store.committed()

    def apply(self, op: Op[T]) -> T:
        """Change something."""
        result, _ = self.store.apply(op)
        return result

    def grant(self, *leases: int, ttl_s: float = 100.0) -> None:
        """Grant leases."""
        for lease in leases:
            self.apply(Grant(lease, ttl_s))

    def lock(self, name: bytes, lease: int = 0) -> Caller[lpb.LockResponse]:
        """Call Lock."""
        method = self._methods["/v3lockpb.Lock/Lock"]
        return Caller(method, lpb.LockRequest(name=name, lease=lease), lpb.LockResponse)

    def campaign(
        self, name: bytes, lease: int = 0, value: bytes = b""
    ) -> Caller[epb.CampaignResponse]:
        """Call Campaign."""
        method = self._methods["/v3electionpb.Election/Campaign"]
        request = epb.CampaignRequest(name=name, lease=lease, value=value)
        return Caller(method, request, epb.CampaignResponse)

    def observe(self, name: bytes) -> Caller[epb.LeaderResponse]:
        """Call Observe."""
        method = self._methods["/v3electionpb.Election/Observe"]
        return Caller(method, epb.LeaderRequest(name=name), epb.LeaderResponse)

    def unlock(self, key: bytes) -> Answer | DeferredAnswer:
        """Call Unlock."""
        return self.locks.unlock(lpb.UnlockRequest(key=key).SerializeToString())

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not (self.store.is_busy or self.tasks or self.chores):
                return
        raise AssertionError("it never comes to an end")

    @property
    def tasks(self) -> set[Any]:
        """What the services have under way."""
        return self.locks._queues._tasks | self.elections._queues._tasks

    @property
    def chores(self) -> int:
        """The amount of work for callers that have left."""
        return len(self.locks._queues.cleanup) + len(self.elections._queues.cleanup)

    def check_nothing_is_left(self) -> None:
        """Check that callers that have left leave nothing in memory."""
        for queues in (self.locks._queues, self.elections._queues):
            assert (len(queues), queues.callers, queues.queued_keys) == (0, 0, 0)
            assert not len(queues.cleanup)
        assert not len(self.store.watchers)
        assert not self.store.pins


def in_shop(test: Callable[[Shop], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a coroutine that gets a shop with the leases 1 to 4."""

    async def main() -> None:
        shop = Shop()
        shop.grant(1, 2, 3, 4)
        shop.commit()
        await test(shop)
        await shop.quiet()

    def run() -> None:
        run_virtual(main)

    run.__name__ = test.__name__
    return run


def error_of(call: Caller[Any]) -> str:
    """What a call was refused with."""
    assert call.error is not None
    assert call.error.status is Status.UNKNOWN
    return call.error.message
