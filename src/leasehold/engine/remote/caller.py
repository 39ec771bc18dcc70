"""Calls to the server: a request, its answer, and the checks of its keyspace.

Checks of the keyspace (`History`). Every answer has a header with the id of the cluster and a
revision. The id never changes. A revision that was seen stays: a call that is *linearizable* (it
changes something, or reads the latest state) and was sent after a revision was seen has at least
that one in its answer. Answers to calls that were under way at the same time may come in any order,
so each call keeps the `floor` that there was when it was sent. Other answers (renewals, headers of
watches) come from one member's own view, which may lag: of them only the id counts.

Once the history is lost, it stays lost: every further call of the engine raises that.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from leasehold.basics.backoff import Backoff, exponential
from leasehold.basics.timers import task_limits
from leasehold.engine.remote.error_mapping import NOTHING, CallArguments, is_useless, refusal_of
from leasehold.errors import CallFailed, CallRefused, ClusterMismatch, HistoryLost, Status, fresh
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.wire import maintenance_pb2
from leasehold.wire import rpc_pb2 as pb

RANGE: Final = "/etcdserverpb.KV/Range"
STATUS: Final = "/etcdserverpb.Maintenance/Status"
_LATEST: Final = pb.RangeRequest(key=b"\0", count_only=True)
"""Requests only the latest revision."""

HAS_LEADER: Final = (("hasleader", "true"),)
"""Asks a member of a cluster to end a stream once it has lost its leader."""


AGAIN: Final = 8
RETRIES: Final = exponential(0.05, 1.0)
"""How often, and after which waits, a read-only call is retried if no server can answer it:
together about as long as the members of a cluster need to elect a new leader."""

UNANSWERED_S: Final = 0.5
"""How long a server may be silent before a caller that gives up changes to another one."""


M = TypeVar("M", bound=Message)


class History:
    """The id of the cluster, and the last revision seen."""

    __slots__ = ("_first_address", "_on_lost", "_where", "cluster_id", "floor", "lost")

    def __init__(
        self, on_lost: Callable[[HistoryLost], None], where: Callable[[], str] = str
    ) -> None:
        """`where` returns the address that is connected to, if it is known."""
        self._on_lost = on_lost
        self._where = where
        self._first_address = ""
        self.cluster_id = 0
        """0 until the first answer."""
        self.floor = 0
        """The last revision that was seen."""
        self.lost: HistoryLost | None = None

    def check(self) -> None:
        """Raise the loss of the history, if it was found."""
        if self.lost is not None:
            raise fresh(self.lost)

    def check_cluster_id(self, cluster_id: int) -> None:
        """Check the id in an answer, 0 if it has none; raise `HistoryLost`."""
        if not cluster_id or cluster_id == self.cluster_id:
            self.check()
            return
        address = self._where()
        if self.cluster_id and address != self._first_address:
            addresses = self._first_address, address
            self._lose(ClusterMismatch(addresses, (self.cluster_id, cluster_id)))
        elif self.cluster_id:
            self._lose(
                f"cluster id changed from {self.cluster_id:x} to {cluster_id:x}: the address leads "
                "to another server, or it was restored from a backup; connect again to use that one"
            )
        self.cluster_id, self._first_address = cluster_id, address

    def check_answer(self, cluster_id: int, revision: int, floor: int = 0) -> None:
        """Check the header of a linearizable call that was sent at a floor; raise `HistoryLost`."""
        self.check_cluster_id(cluster_id)
        if revision < floor:
            self._lose(
                f"revision went back from {floor} to {revision}: the server has lost acknowledged "
                "changes; connect again to continue with the remaining data"
            )
        self.record_revision(revision)

    def record_revision(self, revision: int) -> None:
        """Record a revision that certainly exists, such as that of an event."""
        if revision > self.floor:
            self.floor = revision

    def _lose(self, why: str | HistoryLost) -> None:
        if self.lost is None:
            self.lost = HistoryLost(why) if isinstance(why, str) else why
            self._on_lost(self.lost)
        self.check()


class Caller:
    """Makes calls over a channel. A call waits for a connection, and is not retried.

    Only `idempotent` calls are retried: where they may have been executed, and where a server
    reports that it is unavailable.
    """

    def __init__(self, channel: Channel, history: History, random: Random | None = None) -> None:
        self.channel = channel
        self.history = history
        self._random = random or Random()  # noqa: S311  spreads retries, keeps no secret
        self._settling = asyncio.Lock()
        self._settled_at: float | None = None
        """When the connection that is known to lead to our keyspace was made."""

    async def settle_in(self) -> None:
        """Check that a new connection leads to our keyspace, before any other call on it.

        Otherwise a call would be executed in another keyspace, and a renewal trusted from a server
        that does not have the holder's keys. Raises `HistoryLost`.
        """
        async with self._settling:
            channel = self.channel
            while channel.connected_at is None or channel.connected_at != self._settled_at:
                await channel.ready(wait_for_ready=True)
                connected_at = channel.connected_at
                if self.history.cluster_id:
                    await self._check_keyspace()
                self._settled_at = connected_at

    async def _check_keyspace(self) -> None:
        try:
            await self._ask(
                RANGE,
                _LATEST,
                pb.RangeResponse,
                NOTHING,
                idempotent=True,
                linearizable=True,
                is_settling=True,
            )
        except CallRefused:  # a server on an etcd cluster has no keys, but the id of the cluster
            await self._ask(
                STATUS,
                maintenance_pb2.StatusRequest(),
                maintenance_pb2.StatusResponse,
                NOTHING,
                idempotent=True,
                linearizable=False,
                is_settling=True,
            )

    async def ask(
        self,
        method: str,
        request: Message | bytes,
        kind: type[M],
        *,
        about: CallArguments = NOTHING,
        idempotent: bool = False,
        linearizable: bool = False,
    ) -> M:
        """Make a call; check that the answer comes from our keyspace.

        A request may be given as its encoded bytes.

        Raises the errors of an engine in this process, or those of the connection or the answer.
        """
        self.history.check()
        if self.channel.connected_at != self._settled_at:
            await self._settle_in_time()
        answer = await self._ask(
            method, request, kind, about, idempotent=idempotent, linearizable=linearizable
        )
        if self.channel.connected_at not in (self._settled_at, None):  # the answer may be from it
            await self.settle_in()
        return answer

    async def _settle_if_new(self) -> None:
        """Settle in, unless the connection is known to lead to our keyspace."""
        if self.channel.connected_at != self._settled_at:
            await self.settle_in()

    async def _settle_in_time(self) -> None:
        """Settle in; if the caller gives up meanwhile, change the server as for any other call."""
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
        about: CallArguments,
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
            self.history.check_answer(header.cluster_id, header.revision, floor)
        else:
            self.history.check_cluster_id(header.cluster_id)
        return answer

    async def _refused(
        self,
        error: RpcError,
        method: str,
        body: bytes,
        about: CallArguments,
        *,
        idempotent: bool,
        is_settling: bool,
    ) -> bytes:
        """Retry a call that was refused, if that is allowed; else raise the reason."""
        backoff = Backoff(RETRIES, self._random)
        for _ in range(AGAIN):
            self.leave_if_useless(error)
            if not idempotent or error.status is not Status.UNAVAILABLE:
                break
            await asyncio.sleep(backoff.next_s())
            prepare = None if is_settling else self._settle_if_new
            if prepare is not None:
                await prepare()  # another keyspace may answer now
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
        """Give up the connection, if an error shows that this server is of no use at present."""
        if is_useless(error, has_others=self.channel.has_others):
            self.channel.hang_up(str(error))

    def _given_up(self, asked_at: float) -> None:
        """Called when a caller has given up: change the server if it has been silent."""
        heard_at = self.channel.heard_at
        if heard_at is not None and heard_at < asked_at:
            self.move_on(asked_at)

    def move_on(self, asked_at: float) -> None:
        """Change to another server, if there is one, because this one has not answered in time."""
        connected_at = self.channel.connected_at
        if connected_at is None or not self.channel.has_others:
            return
        silent_s = asyncio.get_running_loop().time() - max(asked_at, connected_at)
        if silent_s >= UNANSWERED_S:
            self.channel.hang_up(f"no response for {silent_s:.1f} s")


def _limit_of_task(loop: asyncio.AbstractEventLoop) -> float | None:
    """Return how many seconds the calls of the current task may take, if there is a limit."""
    task = asyncio.current_task(loop)
    return None if task is None else task_limits.get(task) or None  # 0 is not a timeout


def decoded(kind: type[M], message: bytes, method: str) -> M:
    """Decode an answer."""
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise CallFailed(f"the response to {method} cannot be decoded: {error}") from error
