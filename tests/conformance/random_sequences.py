"""Random sequences of calls, watches, renewals and broken messages, from a seed.

What etcd does not define is left out, or made equal where answers are compared (`sameness`):

- a sort target that does not exist, and in a transaction a put that keeps what a delete from a key
  on may have taken away: both end its process;
- the id of a watch that is -1, which is also that of refusals: after one, etcd tells such a watch
  nothing more; and an id that is used again: what its last watch was not told may be told to the
  new one;
- an end of a range that is there and empty: in what is only read it means "from the key on", and
  nothing in what is written, because etcd then reads its own copy of the request;
- a field of the wrong type, which etcd refuses and protobuf's parsers elsewhere skip; and one of
  several fields of which there may be one, twice; and the field 0 of a message that has no fields;
- sizes within a few bytes of the limit of a request: etcd counts the envelope of its log as well.
"""

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.codec import field
from tests.conformance.client import METHODS, put_op
from tests.conformance.random_calls import FROM_KEY, INT64, KEYS, LEASES, RandomCalls

STREAMS: Final = 2
"""Streams of watches in a sequence."""

MIB: Final = 1 << 20
NOPUT: Final = pb.WatchCreateRequest.NOPUT
NODELETE: Final = pb.WatchCreateRequest.NODELETE
UNKNOWN_FIELDS: Final = (
    b"\xf8\x07\x01",
    b"\xf9\x07" + bytes(8),
    b"\xfd\x07" + bytes(4),
    b"\xfa\x07\x03abc",
    b"\xfb\x07\x08\x01\x12\x01x\xfc\x07",
)
BROKEN: Final = (
    b"\x00\x01",  # no field has the number 0
    b"\xfb\x07\x08\x01",  # a group without end
    b"\xfc\x07",  # an end without a group
    b"\xfe\x07\x01",  # there is no type 6
    b"\xf8\x07" + b"\xff" * 10 + b"\x01",  # a number of more than 64 bits
    b"\xfa\x07\x05abc",  # less than it says
    b"\xf8",
)


@dataclass(frozen=True)
class Call:
    """A call with one request."""

    request: Any


@dataclass(frozen=True)
class Mangled:
    """A call with bytes that may be no message."""

    kind: type[Any]
    body: bytes


@dataclass(frozen=True)
class KeepAlive:
    """A renewal, on the one stream for them."""

    lease: int


@dataclass(frozen=True)
class Watch:
    """A new watch on one of the streams."""

    stream: int
    request: pb.WatchCreateRequest


@dataclass(frozen=True)
class Cancel:
    """The end of a watch, if there is one with this id."""

    stream: int
    watch_id: int


@dataclass(frozen=True)
class Progress:
    """A request for progress."""

    stream: int


Action = Call | Mangled | KeepAlive | Watch | Cancel | Progress


def random_sequence(seed: int, number: int, revision: int) -> list[Action]:
    """Make the sequence of a seed with this number, on servers at this revision."""
    random = Random(f"{seed}/{number}")
    kinds = ("calls", "watched", "full", "large", "bulky")
    kind = random.choices(kinds, (86, 10, 2.5, 1, 0.5))[0]
    return Sequence(random, revision).of(kind)


class Sequence:
    """Makes up a sequence."""

    def __init__(self, random: Random, revision: int) -> None:
        self._random = random
        self._calls = RandomCalls(random, revision)
        self._next_id = 0
        self._cancelled: set[tuple[int, int]] = set()

    def of(self, kind: str) -> list[Action]:
        """Make up a sequence of this kind."""
        if kind == "large":
            return [self._large(), self._call(), self._large()]
        if kind == "bulky":
            return self._bulky()
        length = self._random.choice((6, 12, 20, 30))
        if kind == "full":
            return [Call(self._calls.full_txn()) for _ in range(length // 3)]
        watched = 0.3 if kind == "watched" else 0.0
        actions = [
            self._about_watches() if self._calls.chance(watched) else self._action()
            for _ in range(length * 2 if watched else length)
        ]
        grants = [Call(self._calls.grant(lease)) for lease in LEASES[:2] if self._calls.chance(0.7)]
        return [*grants, *actions, *self._end()]

    def _end(self) -> list[Action]:
        """Look at what there is in the end."""
        everything = Call(pb.RangeRequest(key=FROM_KEY, range_end=FROM_KEY))
        leases = [Call(pb.LeaseTimeToLiveRequest(ID=lease, keys=True)) for lease in LEASES[:2]]
        return [everything, *leases, Call(pb.LeaseRevokeRequest(ID=LEASES[0])), everything]

    def _action(self) -> Action:
        chance = self._random.random()
        if chance < 0.02:
            return self._mangled()
        if chance < 0.05:
            return KeepAlive(self._random.choice((*LEASES, 0, 404)))
        return self._call()

    def _call(self) -> Action:
        return Call(self._calls.next())

    def _mangled(self) -> Action:
        """Make a request that has fields nobody knows, is cut off, or is broken."""
        request = self._calls.next()
        body = request.SerializeToString()
        how = self._random.randrange(4)
        if how == 0:
            body = self._random.choice(UNKNOWN_FIELDS) + body
        elif how == 1:
            body = body[: self._random.randint(0, len(body))]
        elif how == 2:
            broken = self._random.choice(BROKEN)
            body += broken if body else BROKEN[-1]
        elif not isinstance(request, pb.TxnRequest):
            body += body
        return Mangled(type(request), body)

    def _large(self) -> Action:
        """Make a request about as large as may be."""
        size = self._random.choice((MIB * 3 // 2, 2 * MIB))
        beside = self._random.choice((-64, 64))
        key = self._random.choice(KEYS)
        request: Any = self._random.choice(
            (
                pb.PutRequest(key=key, value=b"v", prev_kv=True),
                pb.TxnRequest(success=[put_op(key, b"v")]),
                pb.DeleteRangeRequest(key=key, range_end=b"v"),
                pb.RangeRequest(key=key, range_end=b"v"),
            )
        )
        padding = size + beside - request.ByteSize() - 7
        if isinstance(request, pb.PutRequest):
            request.value = bytes(padding)
            return Call(request)
        if isinstance(request, pb.TxnRequest):
            request.success[0].request_put.value = bytes(padding)
            return Call(request)
        return Mangled(type(request), request.SerializeToString() + field(127, bytes(padding)))

    def _bulky(self) -> list[Action]:
        """Watch large pairs, and delete them in one revision: the response may be fragmented."""
        watch = pb.WatchCreateRequest(
            key=KEYS[0], range_end=b"k:", prev_kv=True, fragment=self._calls.chance(0.7)
        )
        sizes = [self._random.choice((1, 1 << 10, MIB // 2, MIB, MIB * 5 // 4)) for _ in KEYS]
        puts = [
            Call(pb.PutRequest(key=key, value=self._calls.value().ljust(size, b"-")))
            for key, size in zip(KEYS, sizes, strict=True)
        ]
        self._random.shuffle(puts)
        end = self._random.choice((*KEYS[3:], FROM_KEY))
        delete = Call(pb.DeleteRangeRequest(key=KEYS[0], range_end=end))
        return [Watch(0, watch), *puts, delete]

    # Watches.

    def _about_watches(self) -> Action:
        stream = self._random.randrange(STREAMS)
        what = self._random.choices(("create", "cancel", "progress"), (8, 2, 1))[0]
        if what == "cancel":
            watch_id = self._random.randrange(4)
            self._cancelled.add((stream, watch_id))
            return Cancel(stream, watch_id)
        return Progress(stream) if what == "progress" else Watch(stream, self._watch(stream))

    def _watch(self, stream: int) -> pb.WatchCreateRequest:
        calls = self._calls
        start = calls.past() + calls.random.choice((0, 1, 2)) if calls.chance(0.5) else 0
        if calls.chance(0.02):
            start = calls.random.choice((*INT64, -1, 1))
        return pb.WatchCreateRequest(
            key=b"" if calls.chance(0.02) else calls.random.choice(KEYS),
            range_end=calls.range_end(),
            start_revision=start,
            filters=calls.random.choice(([], [], [], [NOPUT], [NODELETE], [NOPUT, NODELETE])),
            prev_kv=calls.chance(0.5),
            progress_notify=calls.chance(0.2),
            fragment=calls.chance(0.3),
            watch_id=self._watch_id(stream) if calls.chance(0.2) else 0,
        )

    def _watch_id(self, stream: int) -> int:
        """Choose a new id, or one that may be in use; never one that was."""
        watch_id = self._random.randrange(1, 3)
        if self._calls.chance(0.3) and (stream, watch_id) not in self._cancelled:
            return watch_id
        self._next_id += 1
        return self._random.choice((-1, 1)) * (100 + self._next_id)


def method_of(kind: type[Any]) -> str:
    """Give the path of the method that takes such requests."""
    return f"/etcdserverpb.{METHODS[kind][0]}"
