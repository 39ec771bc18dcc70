"""`RemoteEngine`: a keyspace with leases on a server, or on a cluster of them.

Results are durable as far as the server's answers are. A call waits for a connection. A call that
was under way when a connection was lost raises `ConnectionLost`, unless it is read-only: it is
unknown whether it was executed, and the engine does nothing twice. Read-only calls are also retried
while a cluster has no leader.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any, Final

from leasehold.basics.event_loop import OwnerLoop
from leasehold.basics.fork_hooks import call_in_child
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.engine.arguments import (
    check_lease,
    check_put,
    check_query,
    check_revision,
    check_size,
    check_txn,
    check_watch,
    key_of,
    size_of,
    ttl_of,
)
from leasehold.engine.interface import Engine, Watch
from leasehold.engine.remote import etcd_messages
from leasehold.engine.remote.caller import Caller, History
from leasehold.engine.remote.error_mapping import NOTHING, CallArguments, about_txn
from leasehold.engine.remote.etcd_leases import EtcdLeases
from leasehold.engine.remote.etcd_messages import get_message, put_message
from leasehold.engine.remote.leasehold_leases import LeaseholdLeases
from leasehold.engine.remote.server_version import ServerInfo, ask_version, recognize
from leasehold.engine.remote.watch_hub import WatchHub
from leasehold.engine.values import (
    DeleteResult,
    LeaseInfo,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import Closed, Forked, HistoryLost
from leasehold.grpc.channel import Channel
from leasehold.grpc.endpoints import Endpoints
from leasehold.keyspace import transaction_rules as txns
from leasehold.keyspace.operations import Compare, Delete, Put, Range, SortBy, Step, Txn
from leasehold.wire import rpc_pb2 as pb

_KV: Final = "/etcdserverpb.KV/"
_RANGE: Final = _KV + "Range"
_PUT: Final = _KV + "Put"

RECONNECT_MAX_S: Final = 1.0
"""The longest pause between two attempts to connect: leases expire in the meantime."""

KEEPALIVE_S: Final = 6.0
KEEPALIVE_TIMEOUT_S: Final = 2.0
"""A dead connection is detected in time for leases of ten seconds. etcd treats more than one ping
in five seconds as an attack."""

_NONE: Final = 0
"""Compared by identity: any other zero only takes the slower path."""


def lease_channel(endpoints: Endpoints, tls: ssl.SSLContext | None) -> Channel:
    """Return a channel for an engine whose leases are renewed on it."""
    return Channel(
        endpoints,
        tls=tls,
        keepalive=KEEPALIVE_S,
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        reconnect_max=RECONNECT_MAX_S,
    )


class RemoteEngine(Engine):
    """An engine behind a channel. `start` connects, and detects the kind of server."""

    server: ServerInfo
    """The server that answers; set by `start`."""

    def __init__(
        self, channel: Channel, random: Random | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.channel = channel
        """The connection to its servers."""
        self._owner = OwnerLoop("engine")
        self._clock = clock
        self._history = History(self._history_lost, lambda: self.address)
        self._caller = Caller(channel, self._history, random)
        self._hub = WatchHub(self._caller, self._trusts_progress, random)
        self._leases: LeaseholdLeases | EtcdLeases
        self._opened_by = os.getpid()
        self._is_forked = False
        self._is_closed = False
        call_in_child(self, RemoteEngine.abandon)

    async def start(self) -> None:
        """Connect, and detect the kind of server. Raises `ConnectFailed` if there is no answer."""
        await self.channel.ready()
        self.server = await recognize(self._caller)
        self.limits, self.features = self.server.limits, self.server.features
        if self.server.is_leasehold:
            self._leases = LeaseholdLeases(self._caller)
        else:
            self._leases = EtcdLeases(self._caller, self._clock)

    async def close(self) -> None:
        """Disconnect: watches and calls under way are ended, leases are not."""
        if self._is_forked or self._is_closed:
            return
        self._owner.check()
        self._is_closed = True
        await self._hub.close()
        if hasattr(self, "_leases"):
            await self._leases.close()
        await self.channel.close()

    @property
    def trouble(self) -> str:
        """Why there is no answer, as far as that is known."""
        return self.channel.trouble

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of its servers, as given."""
        return self.channel.endpoints

    @property
    def address(self) -> str:
        """The endpoint that it is connected to; empty while there is none."""
        return str(self.channel.address or "")

    @property
    def cluster_id(self) -> int:
        """The id of this keyspace; 0 before the first answer."""
        return self._history.cluster_id

    @property
    def lease_service(self) -> LeaseholdLeases | None:
        """The features of a Leasehold server beyond all engines; None on an etcd."""
        return self._leases if isinstance(self._leases, LeaseholdLeases) else None

    def give_up_connection(self, why: str) -> None:
        """Use another endpoint for the next call, if there is one: this one does not answer.

        If there is none, calls under way have a better chance on this connection.
        """
        if self.channel.has_others:
            self.channel.hang_up(why)

    def check(self) -> None:
        """Raise the error that every call would."""
        if self._is_forked:
            raise Forked(self._opened_by)
        if self._is_closed:
            raise Closed("the engine was closed")
        self._history.check()

    def _check_call(self) -> None:
        self.check()
        self._owner.check()

    def abandon(self) -> None:
        """Disable this in a child process; the parent is not affected."""
        self._is_forked = True
        self._hub.abandon(Forked(self._opened_by))

    async def _trusts_progress(self) -> bool:
        if self.server.is_leasehold:
            return True
        return self.server._replace(version=await ask_version(self._caller)).trusts_progress

    def _history_lost(self, error: HistoryLost) -> None:
        self._hub.fail_all(error)
        self.on_history_lost(error)

    # Keys.

    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        revision: int = 0,
        limit: int = 0,
        sort_by: SortBy = SortBy.KEY,
        descending: bool = False,
        count_only: bool = False,
        min_mod_revision: int = 0,
        max_mod_revision: int = 0,
        min_create_revision: int = 0,
        max_create_revision: int = 0,
    ) -> RangeResult:
        """Read keys, all at one revision."""
        self._check_call()
        is_plain = (
            end == b""
            and revision is _NONE
            and limit is _NONE
            and sort_by is SortBy.KEY
            and descending is count_only is False
            and min_mod_revision is max_mod_revision is _NONE
            and min_create_revision is max_create_revision is _NONE
        )
        if is_plain:
            return etcd_messages.range_result(await self._ask_range(get_message(key_of(key, end))))
        query = Range(
            key,
            end,
            revision,
            limit,
            SortBy(sort_by),
            descending,
            count_only,
            min_mod_revision=min_mod_revision,
            max_mod_revision=max_mod_revision,
            min_create_revision=min_create_revision,
            max_create_revision=max_create_revision,
        )
        request = etcd_messages.range_request(check_query(query))
        found = etcd_messages.range_result(await self._ask_range(request, revision))
        return found._replace(revision=revision) if revision else found

    def _ask_range(
        self, request: pb.RangeRequest | bytes, revision: int = 0
    ) -> Coroutine[Any, Any, pb.RangeResponse]:
        return self._caller.ask(
            _RANGE,
            request,
            pb.RangeResponse,
            about=CallArguments(revision=revision) if revision else NOTHING,
            idempotent=True,
            linearizable=True,
        )

    async def put(self, key: bytes, value: bytes | None, *, lease: int | None = 0) -> PutResult:
        """Set a key."""
        self._check_call()
        put = Put(key, value, lease)
        check_put(put)
        check_size(size_of(put), self.limits)
        answer = await self._caller.ask(
            _PUT,
            put_message(key, value, lease),
            pb.PutResponse,
            about=CallArguments(key, lease or 0),
            linearizable=True,
        )
        return etcd_messages.put_result(answer)

    async def delete(self, key: bytes, end: bytes = b"", *, previous: bool = False) -> DeleteResult:
        """Delete keys, all at one revision."""
        self._check_call()
        answer = await self._caller.ask(
            _KV + "DeleteRange",
            etcd_messages.delete_request(Delete(key_of(key, end), end, previous)),
            pb.DeleteRangeResponse,
            linearizable=True,
        )
        return etcd_messages.delete_result(answer)

    async def txn(
        self,
        compares: Sequence[Compare] = (),
        success: Sequence[Step] = (),
        failure: Sequence[Step] = (),
    ) -> TxnResult:
        """Execute `success` if all conditions hold, else `failure`, everything at one revision."""
        self._check_call()
        txn = Txn(compares, success, failure)
        check_txn(txn)
        txns.check(txn, self.limits.txn_operations)
        check_size(size_of(txn), self.limits)
        request = etcd_messages.txn_request(txn)
        is_padded = not self.server.reads_in_txns and txns.has_only_ranges(txn)
        if is_padded:
            etcd_messages.pad(request)
        answer = await self._caller.ask(
            _KV + "Txn", request, pb.TxnResponse, about=about_txn(txn), linearizable=True
        )
        result = etcd_messages.txn_result(answer)
        if is_padded:
            result.results.pop()
        return result

    async def compact(self, revision: int, *, wait: bool = False) -> int:
        """Compact the history before `revision`."""
        self._check_call()
        check_revision(revision)
        answer = await self._caller.ask(
            _KV + "Compact",
            pb.CompactionRequest(revision=revision, physical=wait),
            pb.CompactionResponse,
            about=CallArguments(revision=revision),
        )
        now: int = answer.header.revision
        return now

    def watch(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        start: int = 0,
        previous: bool = False,
        puts: bool = True,
        deletes: bool = True,
    ) -> Watch:
        """Watch keys from a revision on, or with 0 from when `ready` returns."""
        self._check_call()
        check_watch(key, end, start)
        request = pb.WatchCreateRequest(
            key=key,
            range_end=end,
            start_revision=start,
            prev_kv=previous,
            progress_notify=True,
            fragment=True,
        )
        if not puts:
            request.filters.append(pb.WatchCreateRequest.NOPUT)
        if not deletes:
            request.filters.append(pb.WatchCreateRequest.NODELETE)
        return self._hub.add(request)

    # Leases.

    async def grant(self, ttl: float, *, lease: int = 0) -> LeaseInfo:
        """Grant a lease."""
        self._check_call()
        check_lease(lease)
        return await self._leases.grant(ttl_of(ttl, self.limits), lease)

    async def renew(self, lease: int) -> float:
        """Begin a new full term, and return its length."""
        renewed = await self.renew_all([lease])
        for error in renewed.failures.values():
            raise error
        return renewed.terms[lease]

    async def renew_all(
        self, leases: Iterable[int], may_send: Callable[[int], object] | None = None
    ) -> Renewed:
        """Renew any number of leases independently.

        `may_send(lease)` is called immediately before each send; an exception that it raises is the
        failure of that lease, which is not sent.
        """
        self._check_call()
        wanted = list(dict.fromkeys(leases))
        for lease in wanted:
            check_lease(lease)
        if not wanted:
            return Renewed({}, {})
        asked_at = asyncio.get_running_loop().time()
        try:
            return await self._leases.renew_all(wanted, may_send)
        except asyncio.CancelledError:  # leases cannot wait, whatever else the server answers
            if not self._leases.has_answered_since(asked_at):
                self._caller.move_on(asked_at)
            raise

    async def revoke(self, lease: int) -> int:
        """End a lease, and delete its keys."""
        self._check_call()
        check_lease(lease)
        return await self._leases.revoke(lease)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseInfo:
        """Return how long a lease has to run, and its keys."""
        self._check_call()
        check_lease(lease)
        return await self._leases.time_to_live(lease, keys=keys)

    async def leases(self) -> Sequence[LeaseInfo]:
        """Return the leases, sorted by their ends."""
        self._check_call()
        return await self._leases.listed()
