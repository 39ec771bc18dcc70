"""Sequences on two servers: the same answers, field by field, and the same events in the end.

Before a sequence both servers are made equal: nothing stored, one revision, the past compacted. So
a sequence does the same whichever ran before it, even after one that failed; and one that failed
can be made shorter by leaving out calls for as long as it still fails.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.kv_pb2 import Event
from tests.conformance.client import put_op
from tests.conformance.random_calls import FROM_KEY, KEYS
from tests.conformance.random_sequences import (
    NODELETE,
    NOPUT,
    Action,
    Call,
    Cancel,
    KeepAlive,
    Mangled,
    Progress,
    Watch,
)
from tests.conformance.sameness import Refusal, comparable, comparable_events, text_of
from tests.conformance.sides import Feed, Side, Told

SHRINK_S: Final = 60.0
"""How long a failure is made shorter."""

EVERYTHING: Final = pb.DeleteRangeRequest(key=FROM_KEY, range_end=FROM_KEY)


class Difference(AssertionError):
    """Something that the two servers do not do alike."""

    def __init__(self, what: str, real: Any, ours: Any) -> None:
        super().__init__(f"{what} differs\netcd:\n  {text_of(real)}\nours:\n  {text_of(ours)}")


class Comparison:
    """A real etcd, and ours."""

    def __init__(self, real: Side, ours: Side) -> None:
        self.sides = (real, ours)
        self._compacted: set[int] = set()
        self._revision = 0

    async def run(self, make: Callable[[int], Sequence[Action]]) -> None:
        """Do a sequence, which is made for the revision that it begins at."""
        actions = make(await self._make_equal())
        try:
            for action in actions:
                await self.do(action)
            if any(side.feeds for side in self.sides):
                await self._compare_watches()
        finally:
            for side in self.sides:
                await side.end_streams()

    async def _make_equal(self) -> int:
        """Empty both servers, give them the same revision, and compact that; it is given."""
        revisions = await asyncio.gather(*map(_empty, self.sides))
        goal = max(revisions)
        if len({*revisions}) > 1:
            goal += 2
            for side, revision in zip(self.sides, revisions, strict=True):
                for _ in range(revision, goal - 1):
                    await side.ask(pb.PutRequest(key=KEYS[0]))
                await side.ask(EVERYTHING)
        await asyncio.gather(
            *(side.ask(pb.CompactionRequest(revision=goal)) for side in self.sides)
        )
        self._compacted = {goal}
        self._revision = goal
        return goal

    async def do(self, action: Action) -> None:
        """Do one thing on both, and compare the answers."""
        match action:
            case Call(request):
                await self._call(request)
            case Mangled(kind, body):
                await self._send(kind, body, _read(kind, body))
            case KeepAlive(lease):
                self._compare(
                    action, *await asyncio.gather(*(side.keep_alive(lease) for side in self.sides))
                )
            case Watch(stream, request):
                feeds = await self._feeds(stream)
                answers = await asyncio.gather(*(feed.create(request) for feed in feeds))
                self._compare(action, *answers)
            case Cancel(stream, watch_id):
                feeds = await self._feeds(stream)
                answers_or_none = [await feed.cancel(watch_id) for feed in feeds]
                self._compare(action, *answers_or_none)
            case Progress(stream):
                feeds = await self._feeds(stream)
                answers = await asyncio.gather(*(feed.progress() for feed in feeds))
                self._compare(action, *answers)

    async def _call(self, request: Any) -> Any:
        """Make a call on both, and give the answer."""
        return await self._send(type(request), request.SerializeToString(), request)

    async def _send(self, kind: type[Any], body: bytes, request: Any) -> Any:
        answers = await asyncio.gather(*(side.send(kind, body) for side in self.sides))
        real, ours = (comparable(request, answer) for answer in answers)
        self._compare(Mangled(kind, body) if request is None else Call(request), real, ours)
        if not isinstance(real, Refusal):
            self._revision = max(self._revision, real.header.revision)
            if isinstance(request, pb.CompactionRequest):
                self._compacted.add(request.revision)
        return real

    def _compare(self, what: Any, real: Any, ours: Any) -> None:
        if real != ours:
            raise Difference(f"the answer to {shown(what)}", real, ours)

    # Watches.

    async def _feeds(self, stream: int) -> list[Feed]:
        return [await side.feed(stream) for side in self.sides]

    async def _compare_watches(self) -> None:
        """Let all watches be told everything up to now, and compare that."""
        touch = [put_op(key) for key in (*KEYS, FROM_KEY)]
        put = (await self._call(pb.TxnRequest(success=touch))).header.revision
        deleted = (await self._call(EVERYTHING)).header.revision
        for stream in self.sides[0].feeds:
            feeds = await self._feeds(stream)
            assert len(feeds[0].watches) == len(feeds[1].watches)
            for real, ours in zip(feeds[0].watches, feeds[1].watches, strict=True):
                request = real[0]
                last = put if NODELETE in request.filters else deleted
                is_told = not {NOPUT, NODELETE} <= set(request.filters)
                if is_told and request.start_revision <= last:
                    for feed, (_, told) in zip(feeds, (real, ours), strict=True):
                        await feed.told_up_to(told, last)
                self._compare_told(request, real[1], ours[1])

    def _compare_told(self, request: pb.WatchCreateRequest, real: Told, ours: Told) -> None:
        """Compare what two watches were told. One that was cut off has the beginning of it all."""
        events = [comparable_events(told.events, self._compacted) for told in (real, ours)]
        leave_out_what_etcd_left_out(events[0], events[1], real.created_at)
        for told in (real, ours):
            assert not told.compacted or told.compacted in self._compacted
        is_cut = [bool(told.compacted or told.is_cancelled) for told in (real, ours)]
        common = min(map(len, events))
        is_same = events[0][:common] == events[1][:common]
        if not any(is_cut):
            is_same = is_same and len(events[0]) == len(events[1])
            if not request.start_revision:  # else how much goes together is not defined
                is_same = is_same and real.fragments == ours.fragments
        elif not all(is_cut):
            is_same = is_same and len(events[is_cut.index(True)]) == common
        if not is_same:
            what = f"what was told to the watch {text_of(request)} (compacted: {self._compacted})"
            raise Difference(what, _told(events[0], real), _told(events[1], ours))


def leave_out_what_etcd_left_out(real: list[Event], ours: list[Event], created_at: int) -> None:
    """Let previous values be missing in events from before a watch, if etcd has left them out.

    etcd 3.5 begins a watch before it records that previous values are wanted. On a busy machine
    the past can be sent in between (`recvLoop` in its `v3rpc/watch.go`).
    """
    for number, (theirs, own) in enumerate(zip(real, ours, strict=False)):
        if own.kv.mod_revision <= created_at and not theirs.HasField("prev_kv"):
            ours[number] = Event(type=own.type, kv=own.kv)


def _told(events: list[Event], told: Told) -> list[Any]:
    end = f"compacted {told.compacted}, cancelled {told.is_cancelled}"
    return [*events, f"fragments {told.fragments}", end]


def _read(kind: type[Any], body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError:
        return None


async def _empty(side: Side) -> int:
    """Remove everything; gives the revision."""
    for lease in (await side.ask(pb.LeaseLeasesRequest())).leases:
        await side.ask(pb.LeaseRevokeRequest(ID=lease.ID))
    revision: int = (await side.ask(EVERYTHING)).header.revision
    return revision


def shown(action: Any) -> str:
    """Show an action in one line."""
    match action:
        case Call(request):
            return f"{type(request).__name__} {text_of(request)}"
        case Watch(stream, request):
            return f"watch on stream {stream}: {text_of(request)}"
        case Mangled(kind, body):
            return f"{kind.__name__} as bytes: {body[:200].hex()} ({len(body)})"
    return str(action)


async def shrunk(
    comparison: Comparison, make: Callable[[int], list[Action]], failure: Exception
) -> tuple[list[str], Exception]:
    """Leave out what is not needed for a sequence to fail; gives what is left, and how it fails."""
    give_up_at = time.monotonic() + SHRINK_S
    kept = list(range(len(make(0))))

    def chosen(numbers: list[int]) -> Callable[[int], list[Action]]:
        return lambda revision: [make(revision)[number] for number in numbers]

    size = max(1, len(kept) // 2)
    while size and time.monotonic() < give_up_at:
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            try:
                await comparison.run(chosen(fewer))
            except Exception as error:  # noqa: BLE001  every exception is a failure
                kept, failure = fewer, error
                break
        else:
            size //= 2
    return [shown(action) for action in chosen(kept)(1_000)], failure
