"""The leases that there are, a page at a time, in the order of their ids.

What is listed is a *roll*: the ids of the leases that fitted, taken at some moment since the first
page was asked for. It is kept between two pages, so that a page costs no more than its leases. If
it is gone, because others have listed too much else meanwhile, it is taken anew, which makes no
difference: a lease that is there and fits all the time is on every roll, and those before the page
are left out by their ids.
"""

import struct
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from leasehold.core.duration import to_wire_ms
from leasehold.core.ordering import in_order
from leasehold.core.ranges import SLICE, pausing
from leasehold.engine.lease_record import LeaseRecord
from leasehold.engine.slices import Slicer
from leasehold.rpc.messages import parse
from leasehold.rpc.routes import Answer, Later
from leasehold.server.etcd.desk import Desk
from leasehold.server.leases.refusals import enter, invalid
from leasehold.wire.encode import field, varint
from leasehold.wire.leases_pb2 import ListRequest

MAX_PAGE: Final = 10_000
"""Leases on a page, however many are asked for."""

DEFAULT_PAGE: Final = 1_000

MAX_ROLLS: Final = 4
"""Rolls that are kept between pages, of eight bytes a lease each."""

SORTED_AT_ONCE: Final = 2_000
"""Ids that are put in order between two pauses."""

_TOKEN: Final = struct.Struct(">QQqI")
_parse = ListRequest.FromString


class Filter(NamedTuple):
    """Which leases are wanted."""

    holder: str
    key_prefix: bytes

    def looks(self, record: LeaseRecord) -> Iterator[tuple[int, bool]]:
        """Look at a lease, as it is now: tell of some keys each time whether one is wanted.

        How many they were comes first. It is wanted, or not, once that was said of the last ones.
        """
        if self.holder and record.holder != self.holder:
            return
        if not self.key_prefix:
            yield 0, True
            return
        keys = list(record.keys)  # there may be others by the next look
        for start in range(0, len(keys), SLICE):
            some = keys[start : start + SLICE]
            yield len(some), any(key.startswith(self.key_prefix) for key in some)

    def checksum(self) -> int:
        """Sum it up, so that a token is not used with another one."""
        return zlib.crc32(self.key_prefix, zlib.crc32(self.holder.encode()))


class Token(NamedTuple):
    """Where a page begins: in which listing, of which run of the server, after which lease."""

    run: int
    listing: int
    after: int
    filter_sum: int

    def encode(self) -> bytes:
        """Give it as the bytes that a client keeps."""
        packed = _TOKEN.pack(*self)
        return packed + zlib.crc32(packed).to_bytes(4, "big")


class Roll(NamedTuple):
    """The ids of leases in order, taken when `listing` was the last listing to have begun."""

    listing: int
    ids: "array[int]"


class Listing:
    """Lists leases."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._leases = desk.store.leases
        self._run = desk.runtime.journal.identity.term
        self._begun = 0
        """How many listings have begun."""
        self._rolls: OrderedDict[Filter, Roll] = OrderedDict()

    def page(self, message: bytes) -> Later:
        """Give a page."""
        request = parse(_parse, message)
        if request.page_size < 0:
            raise invalid(f"page_size must be from 0 on, not {request.page_size}")
        wanted = Filter(request.holder, request.key_prefix)
        token = _read(request.page_token, wanted) if request.page_token else None
        return self._page(wanted, token, min(request.page_size or DEFAULT_PAGE, MAX_PAGE))

    async def _page(self, wanted: Filter, token: Token | None, size: int) -> Answer:
        await enter(self._desk)
        header = self._desk.durable_header()
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
            next_one = Token(self._run, listing, roll.ids[at - 1], wanted.checksum())
            found.append(field(3, next_one.encode()))
        return header + b"".join(found), self._store.listing_position(with_keys=True)

    async def _pause(self, slicer: Slicer) -> None:
        """Let others have their turn, and see no operation half done."""
        await slicer.pause()
        await enter(self._desk)

    def _look_up(self, wanted: Filter, leases: "array[int]") -> list[bytes]:
        found = []
        now = self._leases.table.clock.now
        for lease in leases:
            leased = self._leases.table.find(lease)
            if leased is None or (leased.deadline <= now and not self._leases.look(leased)):
                continue
            if not wanted.holder or leased.resource.holder == wanted.holder:  # it may be another
                left_ms = int(self._leases.left_s(leased) * 1000.0)
                found.append(encode_listed(leased.resource, left_ms))
        return found

    # Rolls.

    def _kept(self, wanted: Filter, token: Token | None) -> Roll | None:
        """Give the roll that is kept, if it was taken since the listing began."""
        roll = self._rolls.pop(wanted, None)
        if roll is None or token is None or token.run != self._run or roll.listing < token.listing:
            return None
        return roll

    def _keep(self, wanted: Filter, roll: Roll) -> None:
        others = self._rolls.get(wanted)
        if others is None or others.listing < roll.listing:
            self._rolls[wanted] = roll
        self._rolls.move_to_end(wanted)
        if len(self._rolls) > MAX_ROLLS:
            self._rolls.popitem(last=False)

    async def _call_roll(self, wanted: Filter, slicer: Slicer) -> Roll:
        """Take a roll of the leases that fit: each as it was at one moment."""
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
            pausing(in_order(found, int, SORTED_AT_ONCE)), self._desk.runtime.reader.load
        )
        return Roll(listing, array("q", ordered))


def encode_listed(record: LeaseRecord, left_ms: int) -> bytes:
    """Encode a `ListedLease`, as field 2; by hand, for there are very many of them."""
    ttl_ms = varint(to_wire_ms(record.ttl_s))
    numbers = (b"\x08", record.encoded_id, b"\x10", ttl_ms, b"\x18", varint(left_ms), b"\x20")
    listed = b"".join(numbers) + varint(len(record.keys))
    return field(2, listed + field(5, record.holder.encode()) if record.holder else listed)


def _read(token: bytes, wanted: Filter) -> Token:
    packed, checksum = token[:-4], token[-4:]
    try:
        read = Token(*_TOKEN.unpack(packed))
    except struct.error:
        read = None
    if read is None or zlib.crc32(packed).to_bytes(4, "big") != checksum:
        raise invalid("page_token is not one that a page came with; begin without one")
    if read.filter_sum != wanted.checksum():
        raise invalid("page_token is of a listing with other filters; repeat those, or begin anew")
    return read
