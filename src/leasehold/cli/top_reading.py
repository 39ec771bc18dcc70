"""One look at a server for `leasehold top`: few calls, and of all that there is a limited part.

Theory of operation. Locks and sessions are found among keys, which are read without their values,
`MAX_KEYS` of them at most. What a holder says of itself is in the value of its key; it is read for
the locks that can be shown, and again only once it has changed.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from leasehold.cli.top_leases import Leases, OurLeases, TheirLeases
from leasehold.cli.top_locks import Contender, Lock, Tenure, Tenures, find_locks, who_of
from leasehold.cli.top_metrics import LEASES, REVISIONS, Rates, ask_page
from leasehold.engine.interface import prefix_end
from leasehold.engine.remote.caller import Caller
from leasehold.engine.remote.history import History
from leasehold.engine.remote.servers import Server, recognize
from leasehold.recipes.naming import SESSIONS
from leasehold.rpc.channel import Channel
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb

MAX_KEYS: Final = 10_000
"""Keys that are looked at each time, without their values."""

MAX_SHOWN: Final = 100
"""Locks, and sessions, whose holders are asked for each time. No screen has more lines."""

MAX_VALUES: Final = 16
"""Values that are read by one call: each may be long."""

MAX_KEYS_NAMED: Final = 1000
"""Keys of one lease that are remembered, to name some of them."""

_RANGE: Final = "/etcdserverpb.KV/Range"
_TXN: Final = "/etcdserverpb.KV/Txn"
_ALL: Final = b"\0"


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock, and what is known of its holder."""

    lock: Lock
    who: str
    """What the holder says of itself; empty if it is not a client of ours."""
    tenure: Tenure


@dataclass(frozen=True, slots=True)
class SeenSession:
    """A client of ours that has a session."""

    lease: int
    who: str


@dataclass(frozen=True, slots=True)
class Sight:
    """All that was seen by one look."""

    server: Server
    endpoint: str
    revision: int
    keys_total: int
    """Keys that there are, under the prefix that is looked at."""
    keys_read: int
    leases: Leases
    leases_total: int | None
    locks: Sequence[HeldLock]
    """The first ones, those that most wait for; at most `MAX_SHOWN`."""
    locks_total: int
    waiting_total: int
    sessions: Sequence[SeenSession]
    sessions_total: int
    keys_of: dict[int, list[bytes]] = field(default_factory=dict)
    """Keys by lease, as far as they were looked at."""
    rates: dict[str, float | None] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    """What the server has counted, as far as it says so."""


class Reader:
    """Looks at a server, again and again."""

    def __init__(
        self,
        channel: Channel,
        prefix: bytes,
        page_tls: Callable[[], ssl.SSLContext | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one; `page_tls` gives what `/metrics` is asked for with."""
        self._channel = channel
        self._prefix = prefix
        self._page_tls = page_tls
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._caller = Caller(self._channel, History(lambda _: None))
        self._server: Server | None = None
        self._leases: OurLeases | TheirLeases
        self._tenures = Tenures()
        self._rates = Rates()
        self._values: dict[tuple[bytes, int], str] = {}

    def forget(self) -> None:
        """Begin anew: this is another keyspace than it was."""
        self._begin()

    async def look(self) -> Sight:
        """Look once."""
        if self._server is None:
            server = await recognize(self._caller)
            is_ours = server.is_leasehold
            self._leases = (
                OurLeases(self._caller) if is_ours else TheirLeases(self._caller, self._clock)
            )
            self._server = server
        keys, sessions, leases, counted = await self._read_all()
        now_s = self._clock()
        claims, session_claims = _claims(keys), _claims(sessions)
        locks = find_locks(claims)
        shown = locks[:MAX_SHOWN]
        whose = await self._holders([*(lock.holder for lock in shown), *session_claims])
        tenures = self._tenures.look(locks, now_s)[: len(shown)]
        revision = keys.header.revision
        return Sight(
            server=self._server,
            endpoint=str(self._channel.address or ""),
            revision=revision,
            keys_total=keys.count,
            keys_read=len(claims),
            leases=leases,
            leases_total=_total(leases, counted),
            locks=[
                HeldLock(lock, who, tenure)
                for lock, who, tenure in zip(shown, whose, tenures, strict=False)
            ],
            locks_total=len(locks),
            waiting_total=sum(lock.waiting for lock in locks),
            sessions=[
                SeenSession(claim.lease, who)
                for claim, who in zip(session_claims, whose[len(shown) :], strict=True)
            ],
            sessions_total=sessions.count,
            keys_of=_keys_of(claims),
            rates=self._rates.look({**counted, REVISIONS: revision}, now_s),
            counted=counted,
        )

    async def _read_all(
        self,
    ) -> tuple[pb.RangeResponse, pb.RangeResponse, Leases, dict[str, float]]:
        """Ask for everything at once; if one fails the others are given up."""
        try:
            async with asyncio.TaskGroup() as group:
                keys = group.create_task(self._range(self._prefix, MAX_KEYS))
                sessions = group.create_task(self._range(SESSIONS, MAX_SHOWN))
                leases = group.create_task(self._leases.read())
                counted = group.create_task(self._count())
        except ExceptionGroup as failures:  # they are all of a kind: there is no server
            raise failures.exceptions[0] from None
        return keys.result(), sessions.result(), leases.result(), counted.result()

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

    async def _holders(self, claims: Sequence[Contender]) -> list[str]:
        """Say who has each key, as far as that is written into it."""
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


def _claims(found: pb.RangeResponse) -> list[Contender]:
    return [Contender(kv.key, kv.create_revision, kv.mod_revision, kv.lease) for kv in found.kvs]


def _who(pair: kv_pb2.KeyValue) -> str:
    return who_of(pair.value, is_session=pair.key.startswith(SESSIONS))


def _keys_of(claims: Sequence[Contender]) -> dict[int, list[bytes]]:
    keys_of: dict[int, list[bytes]] = {}
    for claim in claims:
        if claim.lease and len(names := keys_of.setdefault(claim.lease, [])) < MAX_KEYS_NAMED:
            names.append(claim.key)
    return keys_of


def _total(leases: Leases, counted: dict[str, float]) -> int | None:
    if leases.total is None and LEASES in counted:
        return max(int(counted[LEASES]), len(leases.by_end))
    return leases.total
