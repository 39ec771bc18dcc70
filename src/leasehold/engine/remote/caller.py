"""Calls to the server: a message out, an answer in, and what both say of history."""

import asyncio
from random import Random
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.engine.remote.history import History
from leasehold.engine.remote.refusals import NOTHING, About, is_useless, refusal_of
from leasehold.errors import CallFailed, Status
from leasehold.rpc.backoff import Backoff
from leasehold.rpc.channel import Channel
from leasehold.rpc.deadlines import task_limits
from leasehold.rpc.grpc import RpcError
from leasehold.wire import rpc_pb2 as pb

RANGE: Final = "/etcdserverpb.KV/Range"
_LATEST: Final = pb.RangeRequest(key=b"\0", count_only=True)
"""Asks for nothing but the latest revision."""

HAS_LEADER: Final = (("hasleader", "true"),)
"""Asks a member of a cluster to end a stream once it has lost its leader."""


AGAIN: Final = 8
AGAIN_BASE_S: Final = 0.05
AGAIN_MAX_S: Final = 1.0
"""How often a call that only reads is made again where no server can answer it, and the pauses:
together about as long as the members of a cluster need to find a new leader."""

UNANSWERED_S: Final = 0.5
"""How long a server may be silent until whoever gives up looks for another one."""


M = TypeVar("M", bound=Message)


class Caller:
    """Makes calls over a channel. A call waits for a connection, and is not made twice.

    Only what is `idempotent` is made again: where it may have been executed, and where a server
    says that it cannot do it at present.
    """

    def __init__(self, channel: Channel, history: History, random: Random | None = None) -> None:
        self.channel = channel
        self.history = history
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret
        self._settling = asyncio.Lock()
        self._settled_at: float | None = None
        """When the connection was made that is known to lead to our keyspace."""

    async def settle_in(self) -> None:
        """Before anything is said on a new connection: does it lead to the keyspace that we know?

        Else a call would be executed in another one, and a renewal believed that a server has
        answered which knows nothing of the holder's keys. Raises `HistoryLost`.
        """
        async with self._settling:
            channel = self.channel
            while channel.connected_at is None or channel.connected_at != self._settled_at:
                await channel.ready(wait_for_ready=True)
                connected_at = channel.connected_at
                if self.history.cluster_id:
                    await self._ask(
                        RANGE,
                        _LATEST,
                        pb.RangeResponse,
                        NOTHING,
                        idempotent=True,
                        linearizable=True,
                        is_settling=True,
                    )
                self._settled_at = connected_at

    async def ask(
        self,
        method: str,
        request: Message | bytes,
        kind: type[M],
        *,
        about: About = NOTHING,
        idempotent: bool = False,
        linearizable: bool = False,
    ) -> M:
        """Make a call; the answer is checked to come from the keyspace that we know.

        A request may be given as the bytes that it is sent as.

        Raises errors of ours: those of an engine in this process, or what is wrong with the
        connection or the answer.
        """
        self.history.check()
        if self.channel.connected_at != self._settled_at:
            await self._settle_in_time()
        answer = await self._ask(
            method, request, kind, about, idempotent=idempotent, linearizable=linearizable
        )
        if self.channel.connected_at not in (self._settled_at, None):  # it may be of that one
            await self.settle_in()
        return answer

    async def _settle_if_new(self) -> None:
        """Settle in, unless the connection is known to lead to our keyspace."""
        if self.channel.connected_at != self._settled_at:
            await self.settle_in()

    async def _settle_in_time(self) -> None:
        """Settle in; whoever gives up meanwhile has the server left, as for any other call."""
        asked_at = asyncio.get_running_loop().time()
        try:
            await self.settle_in()
        except asyncio.CancelledError:
            self._given_up(asked_at)
            raise

    async def _ask(
        self,
        method: str,
        request: Message | bytes,
        kind: type[M],
        about: About,
        *,
        idempotent: bool,
        linearizable: bool,
        is_settling: bool = False,
    ) -> M:
        floor = self.history.floor if linearizable else 0
        body = request if isinstance(request, bytes) else request.SerializeToString()
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            try:
                message = await self.channel.unary(
                    method,
                    body,
                    server_timeout=_limit_of_task(loop),
                    wait_for_ready=True,
                    idempotent=idempotent,
                    prepare=None if is_settling else self._settle_if_new,
                )
            except RpcError as error:
                message = await self._refused(
                    error, method, body, about, idempotent=idempotent, is_settling=is_settling
                )
        except asyncio.CancelledError:
            self._given_up(asked_at)
            raise
        answer = decoded(kind, message, method)
        header: pb.ResponseHeader = answer.header  # type: ignore[attr-defined]
        if linearizable:
            self.history.saw(header.cluster_id, header.revision, floor)
        else:
            self.history.saw_cluster(header.cluster_id)
        return answer

    async def _refused(
        self,
        error: RpcError,
        method: str,
        body: bytes,
        about: About,
        *,
        idempotent: bool,
        is_settling: bool,
    ) -> bytes:
        """Raise why a call was refused, unless it may be made again, and is answered then."""
        backoff = Backoff(self._random, AGAIN_BASE_S, AGAIN_MAX_S)
        for _ in range(AGAIN):
            self.leave_if_useless(error)
            if not idempotent or error.status is not Status.UNAVAILABLE:
                break
            await asyncio.sleep(backoff.next_s())
            prepare = None if is_settling else self._settle_if_new
            if prepare is not None:
                await prepare()  # it may be another keyspace that answers now
            try:
                return await self.channel.unary(
                    method,
                    body,
                    server_timeout=_limit_of_task(asyncio.get_running_loop()),
                    wait_for_ready=True,
                    idempotent=True,
                    prepare=prepare,
                )
            except RpcError as again:
                error = again
        raise refusal_of(error, about, len(body)) from error

    def leave_if_useless(self, error: BaseException) -> None:
        """Give up the connection, if an error says that this server will not do."""
        if is_useless(error, has_others=self.channel.has_others):
            self.channel.hang_up(str(error))

    def _given_up(self, asked_at: float) -> None:
        """Learn that nobody waits for an answer any more: was there any sign of the server?"""
        heard_at = self.channel.heard_at
        if heard_at is not None and heard_at < asked_at:
            self.move_on(asked_at)

    def move_on(self, asked_at: float) -> None:
        """Go to another server, if there is one, because this one has not answered in time."""
        connected_at = self.channel.connected_at
        if connected_at is None or not self.channel.has_others:
            return
        silent_s = asyncio.get_running_loop().time() - max(asked_at, connected_at)
        if silent_s >= UNANSWERED_S:
            self.channel.hang_up(f"no answer for {silent_s:.1f} s")


def _limit_of_task(loop: asyncio.AbstractEventLoop) -> float | None:
    """Return how many seconds the calls of the current task may take, if there is a limit."""
    task = asyncio.current_task(loop)
    return None if task is None else task_limits.get(task) or None  # 0 is not a timeout


def decoded(kind: type[M], message: bytes, method: str) -> M:
    """Read an answer."""
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise CallFailed(f"the answer to {method} cannot be read: {error}") from error
