"""Leases on an etcd: whole seconds, and a message for each renewal.

Renewals by etcd's stream: a message for each lease, and answers without a request id.

Theory of operation. There is one stream at a time, opened when a lease is to be renewed. At most
one renewal of a lease is outstanding on it, and an answer belongs to that one (see
`engine.remote.send_ledger` for the reason). A caller that comes meanwhile does not get that answer,
whose term began before its call: one more message is sent after the answer, for all such callers. A
message whose callers have all given up is not sent: the new term would have no holder.

If all callers give up after a message was sent, it may still be answered, and a slow server would
only get slower if everything were requested again. So the next caller waits for that answer. Its
term began when the message was sent, so the time since then is subtracted, and a ninth more:
holders leave out a tenth of the term they get, which would otherwise be less than a tenth of the
whole term. A holder that counts from its call gets the end of the original term, at the latest.

When the stream is lost all outstanding renewals raise `ConnectionLost`, and the next renewal opens
another one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from leasehold.basics.callbacks import ignore
from leasehold.basics.durations import NEVER
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.remote.caller import HAS_LEADER, Caller, decoded
from leasehold.engine.remote.error_mapping import CallArguments
from leasehold.engine.remote.send_ledger import SendLedger
from leasehold.engine.values import LeaseInfo, Renewed, by_end
from leasehold.errors import CallFailed, Closed, ConnectionLost, LeaseholdError, UnknownLease, fresh
from leasehold.grpc.client_call import StreamingCall
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.leases.holder_view import SESSION_MARGIN
from leasehold.wire import rpc_pb2 as pb

logger = logging.getLogger(__name__)

METHOD: Final = "/etcdserverpb.Lease/LeaseKeepAlive"

IDLE_S: Final = 60.0
"""How long an unused stream is kept."""

CONCURRENT_LOOKUPS: Final = 64
"""Concurrent requests for single leases, to list all of them."""

_PATH: Final = "/etcdserverpb.Lease/"

MaySend: TypeAlias = Callable[[int], object]
"""Raises if a lease must not be renewed any more."""


class _Renewal:
    """A message that is to be sent, or has no answer yet, and the number of its waiters."""

    __slots__ = ("answer", "askers", "checks", "sent_at")

    def __init__(self, answer: asyncio.Future[float]) -> None:
        self.answer = answer
        self.askers = 0
        self.checks: list[MaySend] = []
        """Called before it is sent: one of them must not raise."""
        self.sent_at = NEVER
        """In the holder's time, once it is sent."""

    def may_send(self, lease: int) -> bool:
        """Return whether it is to be sent; otherwise it has failed."""
        failure: Exception | None = None
        for check in self.checks:
            try:
                check(lease)
            except Exception as error:  # noqa: BLE001  for its waiters
                failure = error
            else:
                return True
        assert failure is not None
        self.answer.set_exception(failure)
        return False


class KeepAlives:
    """Renews leases, each with a message, on one stream."""

    def __init__(self, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> None:
        self._caller = caller
        self._clock = clock
        self._ledger: SendLedger[int, _Renewal] = SendLedger()
        self._waiting: dict[int, _Renewal] = {}
        """Leases to be renewed as soon as there is a stream, or an answer to the last message."""
        self._has_waiting = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.answered_at = -NEVER
        """When the last answer came, by the loop's clock."""

    async def renew_all(self, leases: Iterable[int], may_send: MaySend | None = None) -> Renewed:
        """Renew leases independently; terms count from now.

        `may_send(lease)` is called immediately before each send. If it raises for all callers of a
        lease, the lease is not sent, and that is its failure.
        """
        asked_at = self._clock.boottime()
        asked = {lease: self._ask(lease, may_send) for lease in leases}
        try:
            await asyncio.wait([renewal.answer for renewal in asked.values()])
        finally:
            for lease, renewal in asked.items():
                self._leave(lease, renewal, may_send)
        terms: dict[int, float] = {}
        failures: dict[int, Exception] = {}
        for lease, renewal in asked.items():
            error = renewal.answer.exception()
            if error is not None:
                assert isinstance(error, Exception)
                failures[lease] = error
                continue
            since_s = max(0.0, asked_at - renewal.sent_at)
            term_s = renewal.answer.result() - since_s / (1.0 - SESSION_MARGIN)
            if term_s > 0.0:
                terms[lease] = term_s
            else:
                failures[lease] = TimeoutError("the response arrived after the end of the new term")
        return Renewed(terms, failures)

    def _ask(self, lease: int, may_send: MaySend | None) -> _Renewal:
        loop = asyncio.get_running_loop()
        renewal = self._ledger.outstanding(lease)
        if renewal is None or renewal.askers:
            renewal = self._waiting.get(lease)
        if renewal is None:
            renewal = self._waiting[lease] = _Renewal(loop.create_future())
            self._has_waiting.set()
        renewal.askers += 1
        renewal.checks.append(may_send or ignore)
        if self._keeper is None:
            self._keeper = loop.create_task(self._keep())
        return renewal

    def _leave(self, lease: int, renewal: _Renewal, may_send: MaySend | None) -> None:
        """Remove a waiter from a renewal."""
        renewal.askers -= 1
        renewal.checks.remove(may_send or ignore)
        if renewal.answer.done():
            renewal.answer.exception()  # retrieved, even if its waiter is just giving up
        if not renewal.askers and self._waiting.get(lease) is renewal:
            del self._waiting[lease]

    async def close(self) -> None:
        """Close the stream, and abort every renewal."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    # The stream.

    async def _keep(self) -> None:
        failure: Exception = Closed("the engine was closed")
        try:
            while self._waiting:
                await self._stream()
        except (RpcError, LeaseholdError) as error:
            self._caller.leave_if_useless(error)
            failure = as_ours(error) if isinstance(error, RpcError) else error
        except Exception as error:
            logger.exception("renewal stream failed")
            failure = CallFailed(f"renewal stream failed: {error!r}")
        finally:
            self._keeper = None
            self._fail_all(failure)

    async def _stream(self) -> None:
        """Send and receive, until the stream is lost or was not used for a while."""
        await self._caller.settle_in()
        stream = self._caller.channel.stream(METHOD, metadata=HAS_LEADER, wait_for_ready=True)
        async with stream as call:
            writer = asyncio.get_running_loop().create_task(self._write(call))
            reader = asyncio.get_running_loop().create_task(self._read(call))
            try:
                done, _ = await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            finally:
                writer.cancel()
                reader.cancel()
                await asyncio.gather(writer, reader, return_exceptions=True)

    async def _write(self, call: StreamingCall) -> None:
        """Send the waiting renewals; return when there were none for a while."""
        while True:
            self._has_waiting.clear()
            for lease in [each for each in self._waiting if each not in self._ledger]:
                renewal = self._waiting.pop(lease, None)  # it may be given up while others are sent
                if renewal is not None and renewal.may_send(lease):
                    renewal.sent_at = self._clock.boottime()
                    self._ledger.sent(lease, renewal)
                    request = pb.LeaseKeepAliveRequest(ID=lease)
                    await call.send(request.SerializeToString())
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._has_waiting.wait()
            except TimeoutError:
                if not self._ledger and not self._waiting:
                    return

    async def _read(self, call: StreamingCall) -> None:
        while (body := await call.receive()) is not None:
            answer = decoded(pb.LeaseKeepAliveResponse, body, METHOD)
            self._caller.history.check_cluster_id(answer.header.cluster_id)
            renewal = self._ledger.answered(answer.ID)
            self.answered_at = asyncio.get_running_loop().time()
            if answer.ID in self._waiting:
                self._has_waiting.set()
            if renewal is None or not renewal.askers:
                continue
            if answer.TTL > 0:
                renewal.answer.set_result(float(answer.TTL))
            else:
                renewal.answer.set_exception(UnknownLease(answer.ID))
        raise ConnectionLost("the server ended the renewal stream")

    def _fail_all(self, failure: Exception) -> None:
        unanswered = [renewal for _, renewal in self._ledger.broken()]
        for renewal in (*unanswered, *self._waiting.values()):
            if renewal.askers:
                renewal.answer.set_exception(fresh(failure))
        self._waiting.clear()


class EtcdLeases:
    """Leases as etcd has them."""

    def __init__(self, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> None:
        self._caller = caller
        self._keep_alives = KeepAlives(caller, clock)

    async def grant(self, ttl_s: float, lease: int) -> LeaseInfo:
        """Grant a lease."""
        request = pb.LeaseGrantRequest(TTL=round(ttl_s), ID=lease)
        granted = await self._caller.ask(
            _PATH + "LeaseGrant", request, pb.LeaseGrantResponse, about=CallArguments(lease=lease)
        )
        term_s = float(granted.TTL)
        return LeaseInfo(granted.ID, term_s, term_s, None, 0)

    async def renew_all(self, leases: Sequence[int], may_send: MaySend | None = None) -> Renewed:
        """Renew leases independently."""
        return await self._keep_alives.renew_all(leases, may_send)

    def has_answered_since(self, moment: float) -> bool:
        """Return whether any renewal was answered since then."""
        return self._keep_alives.answered_at >= moment

    async def revoke(self, lease: int) -> int:
        """End a lease."""
        answer = await self._caller.ask(
            _PATH + "LeaseRevoke",
            pb.LeaseRevokeRequest(ID=lease),
            pb.LeaseRevokeResponse,
            about=CallArguments(lease=lease),
        )
        revision: int = answer.header.revision
        return revision

    async def time_to_live(self, lease: int, *, keys: bool) -> LeaseInfo:
        """Return how long a lease has to run."""
        found = await self._caller.ask(
            _PATH + "LeaseTimeToLive",
            pb.LeaseTimeToLiveRequest(ID=lease, keys=True),
            pb.LeaseTimeToLiveResponse,
            about=CallArguments(lease=lease),
            idempotent=True,
        )
        if found.TTL < 0:
            raise UnknownLease(lease)
        names = tuple(sorted(found.keys))
        shown = names if keys else None
        return LeaseInfo(lease, float(found.grantedTTL), float(found.TTL), shown, len(names))

    async def listed(self) -> Sequence[LeaseInfo]:
        """Return the leases: all ids, and then each; leases that end meanwhile are left out."""
        answer = await self._caller.ask(
            _PATH + "LeaseLeases",
            pb.LeaseLeasesRequest(),
            pb.LeaseLeasesResponse,
            idempotent=True,
        )
        turns = asyncio.Semaphore(CONCURRENT_LOOKUPS)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._look_up(each.ID, turns)) for each in answer.leases]
        except ExceptionGroup as failures:  # all are alike: there is no server
            raise failures.exceptions[0] from None
        return by_end(found for task in tasks if (found := task.result()) is not None)

    async def _look_up(self, lease: int, turns: asyncio.Semaphore) -> LeaseInfo | None:
        async with turns:
            try:
                return await self.time_to_live(lease, keys=False)
            except UnknownLease:
                return None

    async def close(self) -> None:
        """Abort the calls under way."""
        await self._keep_alives.close()
