"""Renewals by etcd's stream: a message for each lease, and answers that carry no number.

Theory of operation. There is one stream at a time, opened when something is to be renewed. At most
one renewal of a lease is outstanding on it, and an answer belongs to that one (`core.sends` says
why). Whoever asks meanwhile is not given that answer, whose term began before they asked: one more
message goes out once it is there, for all of them. What all have given up before it was sent is
not sent: nobody would know of the new term.

What all have given up after it was sent may yet be answered, and a server that is slow would only
get slower if it were asked for everything again. So whoever asks next waits for that answer. Its
term began when the message was sent, so that much is taken off it, and a ninth more: holders leave
out a tenth of what they are given, and would leave out less than a tenth of the whole term else.
Who counts from when they have asked ends up with the end that they would have had, at the latest.

When the stream is lost all that is outstanding is `ConnectionLost`, and the next renewal opens
another one.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.core.duration import NEVER
from leasehold.core.holding import SESSION_MARGIN
from leasehold.core.sends import SendLedger
from leasehold.engine.remote.caller import HAS_LEADER, Caller, decoded
from leasehold.engine.values import Renewed
from leasehold.errors import CallFailed, Closed, ConnectionLost, LeaseholdError, UnknownLease
from leasehold.rpc.failures import as_ours
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.streaming_call import StreamingCall
from leasehold.stored_errors import fresh
from leasehold.wire import rpc_pb2 as pb

logger = logging.getLogger(__name__)

METHOD: Final = "/etcdserverpb.Lease/LeaseKeepAlive"

IDLE_S: Final = 60.0
"""How long a stream is kept that nobody uses."""


class _Renewal:
    """A message that is to be sent, or has no answer yet, and how many wait for that."""

    __slots__ = ("answer", "askers", "sent_at")

    def __init__(self, answer: asyncio.Future[float]) -> None:
        self.answer = answer
        self.askers = 0
        self.sent_at = NEVER
        """In the holder's time, once it is sent."""


class KeepAlives:
    """Renews leases, each with a message, on one stream."""

    def __init__(self, caller: Caller, clock: Clock = SYSTEM_CLOCK) -> None:
        self._caller = caller
        self._clock = clock
        self._ledger: SendLedger[int, _Renewal] = SendLedger()
        self._waiting: dict[int, _Renewal] = {}
        """Leases to be renewed as soon as there is a stream, or an answer to the last one."""
        self._has_waiting = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.answered_at = -NEVER
        """When the last answer came, by the loop's clock."""

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        """Renew leases, each for itself; terms count from now."""
        asked_at = self._clock.boottime()
        asked = {lease: self._ask(lease) for lease in leases}
        try:
            await asyncio.wait([renewal.answer for renewal in asked.values()])
        finally:
            for lease, renewal in asked.items():
                self._leave(lease, renewal)
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
                failures[lease] = TimeoutError("the answer came when its term was over")
        return Renewed(terms, failures)

    def _ask(self, lease: int) -> _Renewal:
        loop = asyncio.get_running_loop()
        renewal = self._ledger.outstanding(lease)
        if renewal is None or renewal.askers:
            renewal = self._waiting.get(lease)
        if renewal is None:
            renewal = self._waiting[lease] = _Renewal(loop.create_future())
            self._has_waiting.set()
        renewal.askers += 1
        if self._keeper is None:
            self._keeper = loop.create_task(self._keep())
        return renewal

    def _leave(self, lease: int, renewal: _Renewal) -> None:
        """Learn that somebody waits no more."""
        renewal.askers -= 1
        if renewal.answer.done():
            renewal.answer.exception()  # it has been seen, even by who was just giving up
        if not renewal.askers and self._waiting.get(lease) is renewal:
            del self._waiting[lease]

    async def close(self) -> None:
        """End the stream, and every renewal with it."""
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
            logger.exception("renewing has failed")
            failure = CallFailed(f"renewing has failed: {error!r}")
        finally:
            self._keeper = None
            self._fail_all(failure)

    async def _stream(self) -> None:
        """Send and receive, until the stream is lost or nobody has used it for a while."""
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
        """Send what waits; return when nobody has asked for a while."""
        while True:
            self._has_waiting.clear()
            for lease in [each for each in self._waiting if each not in self._ledger]:
                renewal = self._waiting.pop(lease, None)  # it may be given up while others are sent
                if renewal is not None:
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
            self._caller.history.saw_cluster(answer.header.cluster_id)
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
        raise ConnectionLost("the server has ended the stream of renewals")

    def _fail_all(self, failure: Exception) -> None:
        unanswered = [renewal for _, renewal in self._ledger.broken()]
        for renewal in (*unanswered, *self._waiting.values()):
            if renewal.askers:
                renewal.answer.set_exception(fresh(failure))
        self._waiting.clear()
