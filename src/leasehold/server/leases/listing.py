"""Details of one lease, and lists of leases by page, in the order of their ids.

A listing reads from a *snapshot of ids*: the ids of the matching leases, taken at some moment since
the first page was requested. It is kept between two pages, so that a page costs no more than its
leases. If it was dropped, because of too many other listings, it is taken again. The result is
equivalent: a lease that exists and matches all the time is on every snapshot, and those before the
page are left out by their ids.
"""

import struct
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from leasehold.basics.durations import to_wire_ms
from leasehold.errors import UnknownLease
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Answer, DeferredAnswer, LongRead
from leasehold.keyspace.ranges import LONG, SLICE, sort_steps
from leasehold.landlord.batch_messages import REASON_CODES
from leasehold.server.etcd.long_answers import keys_steps
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.leases.request_checks import enter, invalid
from leasehold.store.lease_record import LeaseRecord
from leasehold.store.slices import Slicer
from leasehold.wire.codec import field, varint
from leasehold.wire.leases_pb2 import ListRequest, ShowRequest, ShowResponse

MAX_PAGE: Final = 10_000
"""The maximum number of leases on a page."""

DEFAULT_PAGE: Final = 1_000

MAX_ROLLS: Final = 4
"""Rolls that are kept between pages, with eight bytes for each lease."""

IDS_PER_SORT: Final = 2_000
"""Ids that are sorted between two pauses."""

_TOKEN: Final = struct.Struct(">QQqI")
_parse_list = ListRequest.FromString

KEYS_FIELD: Final = 5
_parse_show = ShowRequest.FromString


class ListFilter(NamedTuple):
    """The filter of a listing."""

    holder: str
    key_prefix: bytes

    def looks(self, record: LeaseRecord) -> Iterator[tuple[int, bool]]:
        """Check a lease in its current state: yield for each group of keys whether one matches.

        Each item has the number of the keys first. The lease matches if any item is True.
        """
        if self.holder and record.holder != self.holder:
            return
        if not self.key_prefix:
            yield 0, True
            return
        keys = list(record.keys)  # they may have changed by the next step
        for start in range(0, len(keys), SLICE):
            some = keys[start : start + SLICE]
            yield len(some), any(key.startswith(self.key_prefix) for key in some)

    def checksum(self) -> int:
        """Return a checksum, so that a token is not used with another filter."""
        return zlib.crc32(self.key_prefix, zlib.crc32(self.holder.encode()))


class PageToken(NamedTuple):
    """The start of a page: the run of the server, the listing, and the lease before it."""

    run: int
    listing: int
    after: int
    filter_sum: int

    def encode(self) -> bytes:
        """Return it as bytes for the client."""
        packed = _TOKEN.pack(*self)
        return packed + zlib.crc32(packed).to_bytes(4, "big")


class IdSnapshot(NamedTuple):
    """The ids of leases in order, taken when `listing` was the latest listing."""

    listing: int
    ids: "array[int]"


class Listing:
    """Lists leases."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._store = context.store
        self._leases = context.store.leases
        self._run = context.runtime.journal.identity.term
        self._begun = 0
        """The number of listings begun."""
        self._rolls: OrderedDict[ListFilter, IdSnapshot] = OrderedDict()

    def page(self, message: bytes) -> DeferredAnswer:
        """Return a page."""
        request = parse(_parse_list, message)
        if request.page_size < 0:
            raise invalid(f"page_size must be at least 0, got {request.page_size}")
        wanted = ListFilter(request.holder, request.key_prefix)
        token = _read(request.page_token, wanted) if request.page_token else None
        return self._page(wanted, token, min(request.page_size or DEFAULT_PAGE, MAX_PAGE))

    async def _page(self, wanted: ListFilter, token: PageToken | None, size: int) -> Answer:
        await enter(self._context)
        header = self._context.durable_header()
        slicer = Slicer(self._leases.monotonic)
        roll = self._kept(wanted, token) or await self._call_roll(wanted, slicer)
        at = 0 if token is None else bisect_right(roll.ids, token.after)
        found: list[bytes] = []
        while at < len(roll.ids) and len(found) < size:
            until = min(at + SLICE, at + size - len(found), len(roll.ids))
            found += self._look_up(wanted, roll.ids[at:until])
            at = until
            await self._pause(slicer)
        if at < len(roll.ids):
            self._keep(wanted, roll)
            listing = roll.listing if token is None or token.run != self._run else token.listing
            next_one = PageToken(self._run, listing, roll.ids[at - 1], wanted.checksum())
            found.append(field(3, next_one.encode()))
        return header + b"".join(found), self._store.listing_position(with_keys=True)

    async def _pause(self, slicer: Slicer) -> None:
        """Let other work run, and return when no sliced operation is in progress."""
        await slicer.pause()
        await enter(self._context)

    def _look_up(self, wanted: ListFilter, leases: "array[int]") -> list[bytes]:
        found = []
        now = self._leases.table.clock.now
        for lease in leases:
            leased = self._leases.table.find(lease)
            if leased is None or (leased.deadline <= now and not self._leases.expire_one(leased)):
                continue
            if not wanted.holder or leased.resource.holder == wanted.holder:  # it may be a new one
                left_ms = int(self._leases.left_s(leased) * 1000.0)
                found.append(encode_listed(leased.resource, left_ms))
        return found

    # Rolls.

    def _kept(self, wanted: ListFilter, token: PageToken | None) -> IdSnapshot | None:
        """Return the roll that is kept, if it was taken since the listing began."""
        roll = self._rolls.pop(wanted, None)
        if roll is None or token is None or token.run != self._run or roll.listing < token.listing:
            return None
        return roll

    def _keep(self, wanted: ListFilter, roll: IdSnapshot) -> None:
        others = self._rolls.get(wanted)
        if others is None or others.listing < roll.listing:
            self._rolls[wanted] = roll
        self._rolls.move_to_end(wanted)
        if len(self._rolls) > MAX_ROLLS:
            self._rolls.popitem(last=False)

    async def _call_roll(self, wanted: ListFilter, slicer: Slicer) -> IdSnapshot:
        """Collect the ids of matching leases, each checked at one moment."""
        self._begun += 1
        listing = self._begun
        found: list[int] = []
        looked = 0
        for leased in list(self._leases.table):
            looked += 1
            for keys, fits in wanted.looks(leased.resource):
                looked += keys
                if fits:
                    found.append(leased.resource.id)
                    break
                if looked >= SLICE:
                    await self._pause(slicer)
                    looked = 0
            if looked >= SLICE:
                await self._pause(slicer)
                looked = 0
        ordered = await slicer.run(
            sort_steps(found, int, slice_items=IDS_PER_SORT), self._context.runtime.reader.load
        )
        return IdSnapshot(listing, array("q", ordered))


def encode_listed(record: LeaseRecord, left_ms: int) -> bytes:
    """Encode a `ListedLease`, as field 2; without protobuf, for there are very many of them."""
    ttl_ms = varint(to_wire_ms(record.ttl_s))
    numbers = (b"\x08", record.encoded_id, b"\x10", ttl_ms, b"\x18", varint(left_ms), b"\x20")
    listed = b"".join(numbers) + varint(len(record.keys))
    return field(2, listed + field(5, record.holder.encode()) if record.holder else listed)


def _read(token: bytes, wanted: ListFilter) -> PageToken:
    packed, checksum = token[:-4], token[-4:]
    try:
        read = PageToken(*_TOKEN.unpack(packed))
    except struct.error:
        read = None
    if read is None or zlib.crc32(packed).to_bytes(4, "big") != checksum:
        raise invalid("page_token is not valid; start again without a token")
    if read.filter_sum != wanted.checksum():
        raise invalid(
            "page_token belongs to a listing with other filters; repeat them, or start again"
        )
    return read


class LeaseDetails:
    """Returns the details of single leases."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._store = context.store

    def show(self, message: bytes) -> Answer | DeferredAnswer:
        """Show a lease, or report why it does not exist."""
        if self._store.is_busy:
            return self._context.when_idle(self.show, message)
        request = parse(_parse_show, message)
        try:
            record = self._store.leases.current(request.id)
        except UnknownLease as error:
            if self._store.is_ending(request.id):  # its end has no position yet
                return self._context.when_idle(self.show, message)
            answer = ShowResponse(reason=REASON_CODES[error.reason]).SerializeToString()
            return self._context.durable_header() + answer, self._store.lease_position(request.id)
        return self._alive(record, with_keys=request.keys)

    def _alive(self, record: LeaseRecord, *, with_keys: bool) -> Answer | LongRead:
        store = self._store
        revision, position = store.durable_revision, store.lease_position(record.id)
        if store.keys_position(record.id):  # the number of its keys is always included
            revision, position = store.revision, store.position
        left_ms = int(store.leases.remaining_s(record.id) * 1000)
        answer = encode_listed(record, left_ms)
        if with_keys and len(record.keys) > LONG:
            self._context.check_read_room(position)
            steps = keys_steps(answer, list(record.keys))
            return self._context.long_read(
                partial(self._context.in_pieces, revision, steps, position)
            )
        if with_keys:
            answer += b"".join([field(KEYS_FIELD, key) for key in sorted(record.keys)])
        return self._context.header(revision) + answer, position
