"""Renewals by etcd's stream: a message for each lease, and answers that carry no number.

Theory of operation. There is one stream at a time, opened when something is to be renewed. At most
one renewal of a lease is outstanding on it, and an answer belongs to that one (`core.sends` says
why). Whoever asks meanwhile is not given that answer, whose term began before they asked: one more
message goes out once it is there, for all of them.

When the stream is lost all that is outstanding is `ConnectionLost`, and the next renewal opens
another one.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from leasehold.core.sends import SendLedger
from leasehold.engine.remote.caller import HAS_LEADER, Caller, decoded
from leasehold.engine.remote.refusals import is_useless
from leasehold.engine.values import Renewed
from leasehold.errors import ConnectionLost, LeaseholdError, UnknownLease
from leasehold.rpc.failures import as_ours
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.streaming_call import StreamingCall
from leasehold.wire import rpc_pb2 as pb

METHOD: Final = "/etcdserverpb.Lease/LeaseKeepAlive"

IDLE_S: Final = 60.0
"""How long a stream is kept that nobody uses."""

_Answer = asyncio.Future[float]


class KeepAlives:
    """Renews leases, each with a message, on one stream."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._ledger: SendLedger[int, _Answer] = SendLedger()
        self._waiting: dict[int, _Answer] = {}
        """Leases to be renewed as soon as there is a stream, or an answer to the last one."""
        self._has_waiting = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def renew_all(self, leases: Iterable[int]) -> Renewed:
        """Renew leases, each for itself."""
        asked = {lease: self._ask(lease) for lease in leases}
        if asked:
            await asyncio.wait(asked.values())
        terms: dict[int, float] = {}
        failures: dict[int, Exception] = {}
        for lease, answer in asked.items():
            error = answer.exception()
            if error is None:
                terms[lease] = answer.result()
            else:
                assert isinstance(error, Exception)
                failures[lease] = error
        return Renewed(terms, failures)

    def _ask(self, lease: int) -> _Answer:
        loop = asyncio.get_running_loop()
        answer = self._waiting.get(lease)
        if answer is None:
            answer = self._waiting[lease] = loop.create_future()
            answer.add_done_callback(_retrieve)
            self._has_waiting.set()
        if self._keeper is None:
            self._keeper = loop.create_task(self._keep())
        return answer

    async def close(self) -> None:
        """End the stream, and every renewal with it."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    # The stream.

    async def _keep(self) -> None:
        failure: Exception = ConnectionLost("the stream of renewals was ended")
        try:
            stream = self._caller.channel.stream(METHOD, metadata=HAS_LEADER, wait_for_ready=True)
            async with stream as call:
                await self._converse(call)
        except (RpcError, LeaseholdError) as error:
            if is_useless(error):
                self._caller.channel.hang_up(str(error))
            failure = as_ours(error) if isinstance(error, RpcError) else error
        finally:
            self._keeper = None
            self._fail_all(failure)

    async def _converse(self, call: StreamingCall) -> None:
        """Send and receive, until the stream is lost or nobody has used it for a while."""
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
                answer = self._waiting.pop(lease)
                if not answer.cancelled():
                    self._ledger.sent(lease, answer)
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
            asked = self._ledger.answered(answer.ID)
            if answer.ID in self._waiting:
                self._has_waiting.set()
            if asked is None or asked.done():
                continue
            if answer.TTL > 0:
                asked.set_result(float(answer.TTL))
            else:
                asked.set_exception(UnknownLease(answer.ID))
        raise ConnectionLost("the server has ended the stream of renewals")

    def _fail_all(self, failure: Exception) -> None:
        unanswered = [answer for _, answer in self._ledger.broken()]
        for answer in (*unanswered, *self._waiting.values()):
            if not answer.done():
                answer.set_exception(failure)
        self._waiting.clear()


def _retrieve(answer: _Answer) -> None:
    """Take note of a failure that nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()
