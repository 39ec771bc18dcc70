"""One read of a server for `leasehold top`: few calls, each with limits.

*Locks* and sessions are found among keys, which are read without their values, `MAX_KEYS` of them
at most. A client in the queue of a lock has a key `<name>/<lease in hexadecimal>` attached to that
lease; the one that was created first holds it. `etcdctl lock` and `etcdctl elect`, Go's
`concurrency` and our own clients all use this layout. Other keys of the same form are shown as
well: they cannot be told apart. The description of a holder is in the value of its key; it is read
for the locks that can be shown, and again only after it has changed.

*Leases.* A Leasehold server lists leases with their ends, 10,000 in one answer. An etcd lists ids
only, and each lease takes a call. So known ends are cached: a lease does not end sooner, unless it
is revoked, and then it is not listed any more. Each read queries the leases that are not cached,
and then those with the earliest cached ends, which are the ones that are shown.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from leasehold.cli.top_metrics import LEASES, REVISIONS, Rates, ask_page
from leasehold.engine.interface import prefix_end
from leasehold.engine.remote.caller import STATUS, Caller, History
from leasehold.engine.remote.etcd_leases import EtcdLeases
from leasehold.engine.remote.leasehold_leases import HolderLease, LeaseholdLeases
from leasehold.engine.remote.server_version import ServerInfo, recognize
from leasehold.engine.values import LeaseInfo
from leasehold.errors import UnknownLease
from leasehold.grpc.channel import Channel
from leasehold.locks.lock_keys import MAX_WHO, Claim, text_of
from leasehold.sessions.session import SESSIONS, hex_of
from leasehold.wire import kv_pb2, maintenance_pb2
from leasehold.wire import rpc_pb2 as pb

MAX_KEYS: Final = 10_000
"""Keys that are examined in each read, without their values."""

MAX_SHOWN: Final = 100
"""Locks, and sessions, whose holders are queried in each read. No screen has more lines."""

MAX_VALUES: Final = 16
"""Values that are read by one call: each may be long."""

MAX_KEYS_NAMED: Final = 1000
"""Keys of one lease that are recorded, to name some of them."""

MAX_LEASES: Final = 10_000
"""Leases that are examined in each read."""

MAX_LOOKUPS: Final = 200
"""Leases that are queried from etcd in each read, one by one."""

CONCURRENT_LOOKUPS: Final = 32

RELIST_S: Final = 10.0
"""How long a list of ids is reused if it has more than the examined leases."""

_RANGE: Final = "/etcdserverpb.KV/Range"
_TXN: Final = "/etcdserverpb.KV/Txn"
_LEASES: Final = "/etcdserverpb.Lease/LeaseLeases"
_ALL: Final = b"\0"

# Locks among the keys.


class QueueKey(NamedTuple):
    """The needed fields of a key: not every value is read."""

    key: bytes
    create_revision: int
    mod_revision: int
    lease: int


class SeenLock(NamedTuple):
    """A lock, its holder, and the number of waiters."""

    name: bytes
    holder: QueueKey
    waiting: int


def find_locks(contenders: Iterable[QueueKey]) -> list[SeenLock]:
    """Return locks ordered by descending number of waiters, then by name."""
    queues: dict[bytes, list[QueueKey]] = {}
    for contender in contenders:
        name = lock_of(contender)
        if name is not None:
            queues.setdefault(name, []).append(contender)
    locks = [
        SeenLock(name, min(those, key=lambda each: each.create_revision), len(those) - 1)
        for name, those in queues.items()
    ]
    return sorted(locks, key=lambda lock: (-lock.waiting, lock.name))


def lock_of(contender: QueueKey) -> bytes | None:
    """Return the name of the lock that a key contends for; None if it does not."""
    if not contender.lease or contender.key.startswith(SESSIONS):
        return None
    name, slash, last = contender.key.rpartition(b"/")
    return name if slash and name and last == hex_of(contender.lease) else None


def who_of(value: bytes, *, is_session: bool = False) -> str:
    """Return the holder named in the value of one of our keys; empty for keys of other clients."""
    claim = Claim.decode(value)
    if claim is not None:
        return claim.who
    return text_of(value[:MAX_WHO]) if is_session else ""


class HeldTime(NamedTuple):
    """How long a holder was seen to hold a lock."""

    seconds: float
    is_whole: bool
    """Whether the beginning was seen, too; otherwise it may be longer."""


class HeldTimes:
    """Records since when each holder was seen, for as long as it holds."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[int, float, bool]] = {}
        self._has_read = False

    def update(self, locks: Sequence[SeenLock], now_s: float) -> list[HeldTime]:
        """Record the current holders; return their held times."""
        before, self._seen = self._seen, {}
        held_times = []
        for lock in locks:
            revision = lock.holder.create_revision
            known = before.get(lock.name)
            if known is None or known[0] != revision:
                known = (revision, now_s, self._has_read)
            self._seen[lock.name] = known
            held_times.append(HeldTime(now_s - known[1], known[2]))
        self._has_read = True
        return held_times


# The leases that end next.


class SeenLeases(NamedTuple):
    """The current leases."""

    by_end: Sequence[HolderLease]
    """The examined leases, ordered by their ends."""
    total: int | None
    """The number of leases; None if there are more than were listed, and the number is unknown."""


class LeaseholdLeaseReader:
    """Leases on a Leasehold server."""

    def __init__(self, caller: Caller) -> None:
        self._service = LeaseholdLeases(caller)

    async def read(self) -> SeenLeases:
        """Read them; if there are too many, the first ones by id."""
        pages = self._service.pages(page_size=MAX_LEASES)
        found = await anext(pages)
        total = len(found) if len(found) < MAX_LEASES else None
        await pages.aclose()  # type: ignore[attr-defined]
        return SeenLeases(sorted(found, key=lambda each: each.info.remaining), total)


class _KnownEnd(NamedTuple):
    """The last answer of an etcd about a lease."""

    info: LeaseInfo
    ends_at_s: float


class EtcdLeaseReader:
    """Leases on etcd."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._leases = EtcdLeases(caller)
        self._known: dict[int, _KnownEnd] = {}
        self._ids: list[int] = []
        self._listed_at_s: float | None = None

    async def read(self) -> SeenLeases:
        """Read them: query a few, and use the cached ends of the others."""
        await self._list()
        some = self._ids[:MAX_LEASES]
        self._known = {each: self._known[each] for each in some if each in self._known}
        wanted = sorted(some, key=self._end_of)[:MAX_LOOKUPS]
        turns = asyncio.Semaphore(CONCURRENT_LOOKUPS)
        await asyncio.gather(*(self._look_up(each, turns) for each in wanted))
        now_s = time.monotonic()
        seen = [
            HolderLease(known.info._replace(remaining=max(0.0, known.ends_at_s - now_s)), "")
            for known in self._known.values()
        ]
        return SeenLeases(sorted(seen, key=lambda each: each.info.remaining), len(self._ids))

    async def _list(self) -> None:
        now_s = time.monotonic()
        is_short = len(self._ids) <= MAX_LEASES
        if self._listed_at_s is None or is_short or now_s >= self._listed_at_s + RELIST_S:
            answer = await self._caller.ask(
                _LEASES, pb.LeaseLeasesRequest(), pb.LeaseLeasesResponse, idempotent=True
            )
            self._ids = sorted(each.ID for each in answer.leases)
            self._listed_at_s = now_s

    def _end_of(self, lease: int) -> float:
        return self._known[lease].ends_at_s if lease in self._known else float("-inf")

    async def _look_up(self, lease: int, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                info = await self._leases.time_to_live(lease, keys=False)
            except UnknownLease:
                self._known.pop(lease, None)
            else:
                self._known[lease] = _KnownEnd(info, time.monotonic() + info.remaining)


# One read of all.


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock, and its holder."""

    lock: SeenLock
    who: str
    """The holder's description of itself; empty if it is not a client of ours."""
    held_time: HeldTime


@dataclass(frozen=True, slots=True)
class SeenSession:
    """A client of ours that has a session."""

    lease: int
    who: str


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """The result of one read."""

    server: ServerInfo
    endpoint: str
    revision: int
    keys_total: int
    """The number of keys under the examined prefix."""
    keys_read: int
    leases: SeenLeases
    leases_total: int | None
    locks: Sequence[HeldLock]
    """The locks with the most waiters; at most `MAX_SHOWN`."""
    locks_total: int
    waiting_total: int
    sessions: Sequence[SeenSession]
    sessions_total: int
    keys_of: dict[int, list[bytes]] = field(default_factory=dict)
    """Keys by lease, as far as they were examined."""
    rates: dict[str, float | None] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    """The server's counters, as far as they are available."""


class TopReader:
    """Reads from a server repeatedly."""

    def __init__(
        self,
        channel: Channel,
        prefix: bytes,
        page_tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        """Make one; `page_tls` returns the TLS context for `/metrics`."""
        self._channel = channel
        self._prefix = prefix
        self._page_tls = page_tls
        self._begin()

    def _begin(self) -> None:
        self._caller = Caller(self._channel, History(lambda _: None))
        self._server: ServerInfo | None = None
        self._leases: LeaseholdLeaseReader | EtcdLeaseReader
        self._held_times = HeldTimes()
        self._rates = Rates()
        self._values: dict[tuple[bytes, int], str] = {}

    def forget(self) -> None:
        """Drop all cached data: this is another keyspace than before."""
        self._begin()

    async def read(self) -> ServerSnapshot:
        """Read once."""
        if self._server is None:
            server = await recognize(self._caller)
            is_ours = server.is_leasehold
            self._leases = (
                LeaseholdLeaseReader(self._caller) if is_ours else EtcdLeaseReader(self._caller)
            )
            self._server = server
        keys, sessions, leases, counted = await self._read_all()
        now_s = time.monotonic()
        claims, session_claims = _claims(keys), _claims(sessions)
        locks = find_locks(claims)
        shown = locks[:MAX_SHOWN]
        whose = await self._holders([*(lock.holder for lock in shown), *session_claims])
        held_times = self._held_times.update(locks, now_s)[: len(shown)]
        revision = keys.header.revision
        return ServerSnapshot(
            server=self._server,
            endpoint=str(self._channel.address or ""),
            revision=revision,
            keys_total=keys.count,
            keys_read=len(claims),
            leases=leases,
            leases_total=_total(leases, counted),
            locks=[
                HeldLock(lock, who, held_time)
                for lock, who, held_time in zip(shown, whose, held_times, strict=False)
            ],
            locks_total=len(locks),
            waiting_total=sum(lock.waiting for lock in locks),
            sessions=[
                SeenSession(claim.lease, who)
                for claim, who in zip(session_claims, whose[len(shown) :], strict=True)
            ],
            sessions_total=sessions.count,
            keys_of=_keys_of(claims),
            rates=self._rates.update({**counted, REVISIONS: revision}, now_s),
            counted=counted,
        )

    async def _read_all(
        self,
    ) -> tuple[pb.RangeResponse, pb.RangeResponse, SeenLeases, dict[str, float]]:
        """Send all requests together; if one fails the others are cancelled."""
        if self._server is not None and self._server.engine:
            return await self._read_engine()
        try:
            async with asyncio.TaskGroup() as group:
                keys = group.create_task(self._range(self._prefix, MAX_KEYS))
                sessions = group.create_task(self._range(SESSIONS, MAX_SHOWN))
                leases = group.create_task(self._leases.read())
                counted = group.create_task(self._count())
        except ExceptionGroup as failures:  # they have the same cause: the server is not reachable
            raise failures.exceptions[0] from None
        return keys.result(), sessions.result(), leases.result(), counted.result()

    async def _read_engine(
        self,
    ) -> tuple[pb.RangeResponse, pb.RangeResponse, SeenLeases, dict[str, float]]:
        """Read what a server on an etcd cluster has: a revision and counters, no keys."""
        status = await self._caller.ask(
            STATUS, maintenance_pb2.StatusRequest(), maintenance_pb2.StatusResponse, idempotent=True
        )
        nothing = pb.RangeResponse(header=status.header)
        return nothing, nothing, SeenLeases((), 0), await self._count()

    async def _range(self, prefix: bytes, limit: int) -> pb.RangeResponse:
        request = pb.RangeRequest(
            key=prefix or _ALL,
            range_end=prefix_end(prefix) if prefix else _ALL,
            limit=limit,
            keys_only=True,
        )
        return await self._caller.ask(_RANGE, request, pb.RangeResponse, idempotent=True)

    async def _count(self) -> dict[str, float]:
        address = self._channel.address
        return {} if address is None else await ask_page(address, self._page_tls())

    async def _holders(self, claims: Sequence[QueueKey]) -> list[str]:
        """Return the holder of each key, as far as its value names one."""
        wanted = [(each.key, each.mod_revision) for each in claims]
        missing = [each for each in dict.fromkeys(wanted) if each not in self._values]
        read: dict[tuple[bytes, int], str] = {}
        for at in range(0, len(missing), MAX_VALUES):
            read |= await self._read_values(missing[at : at + MAX_VALUES])
        self._values = {each: self._values.get(each, read.get(each, "")) for each in wanted}
        return [self._values[each] for each in wanted]

    async def _read_values(
        self, wanted: Sequence[tuple[bytes, int]]
    ) -> dict[tuple[bytes, int], str]:
        request = pb.TxnRequest()
        for key, _ in wanted:
            request.success.add().request_range.key = key
        answer = await self._caller.ask(_TXN, request, pb.TxnResponse, idempotent=True)
        pairs = [each for one in answer.responses for each in one.response_range.kvs]
        return {(each.key, each.mod_revision): _who(each) for each in pairs}


def _claims(found: pb.RangeResponse) -> list[QueueKey]:
    return [QueueKey(kv.key, kv.create_revision, kv.mod_revision, kv.lease) for kv in found.kvs]


def _who(pair: kv_pb2.KeyValue) -> str:
    return who_of(pair.value, is_session=pair.key.startswith(SESSIONS))


def _keys_of(claims: Sequence[QueueKey]) -> dict[int, list[bytes]]:
    keys_of: dict[int, list[bytes]] = {}
    for claim in claims:
        if claim.lease and len(names := keys_of.setdefault(claim.lease, [])) < MAX_KEYS_NAMED:
            names.append(claim.key)
    return keys_of


def _total(leases: SeenLeases, counted: dict[str, float]) -> int | None:
    if leases.total is None and LEASES in counted:
        return max(int(counted[LEASES]), len(leases.by_end))
    return leases.total
