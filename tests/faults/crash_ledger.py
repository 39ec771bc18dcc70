"""What the clients of a server have done and seen, through all its faults."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol, TypeVar

import grpc

from leasehold.wire import rpc_pb2 as pb
from tests.faults.etcd_calls import EtcdCalls
from tests.support.linearizability import (
    Action,
    Ask,
    Call,
    Delete,
    Deleted,
    Get,
    Header,
    History,
    LeaseHistory,
    Put,
    Read,
    Restart,
    Stall,
    Violation,
    Written,
    check,
    check_latest_end,
    check_lease,
)

DEADLINE_S: Final = 60.0
LATE_S: Final = 5.0
"""How late a lease may end on a busy machine."""
UNANSWERED_S: Final = 20.0
"""How late a request without an answer may be heard: not after the life that it was sent in."""


class Answer(Protocol):
    """Any answer of etcd's API."""

    @property
    def header(self) -> Any:
        """Where it was answered, at which revision."""


A = TypeVar("A", bound=Answer)


class Client(Protocol):
    """One of those who use the server until it is killed."""

    name: str

    def use(self, calls: EtcdCalls) -> None:
        """Make some calls; is called again and again."""


class Ledger:
    """The history of all calls, and of all leases. Any thread may add to it."""

    def __init__(self) -> None:
        self.history = History()
        self.pauses: list[Restart | Stall] = []
        self.is_ending = threading.Event()
        """Set while the server is, or is about to be, down."""
        self.leases: dict[int, LeaseHistory] = {}
        self.terms_s: dict[int, int] = {}
        self.compaction_sent = 0
        self.compaction_answered = 0
        self.places: dict[str, int] = {}
        """The revisions that somebody has come to, and where it would hurt to compact."""
        self._answers = 0
        self._ends = 0
        self._is_over = False
        self._news = threading.Condition()

    # How the clients and the test wait for each other.

    def pause(self, seconds: float) -> None:
        """Do nothing for a while, unless the life is over."""
        self.is_ending.wait(seconds)

    def heard(self, *, ends: int = 0) -> None:
        """Count an answer, and leases that have ended by themselves."""
        with self._news:
            self._answers += 1
            self._ends += ends
            self._news.notify_all()

    def give_up(self) -> None:
        """Wait for nothing any more: a client has failed."""
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def wait_for_answers(self, answers: int, *, ends: int = 0) -> None:
        """Wait until so many more answers have come, and so many more leases have ended."""
        with self._news:
            answers, ends = self._answers + answers, self._ends + ends
            assert self._news.wait_for(
                lambda: self._is_over or (self._answers >= answers and self._ends >= ends),
                DEADLINE_S,
            ), "no answers, or no lease ends"

    # Calls on keys.

    def ask(self, client: Hashable, what: str, call: Callable[[], A]) -> A:
        """Make a call for which only the revision in its header is noted."""
        with self.history.call(client, None, Ask(what)) as noted:
            answer = call()
            noted.returned(Header(answer.header.revision))
        self.heard()
        return answer

    def put(
        self, client: Hashable, calls: EtcdCalls, key: bytes, value: bytes, lease: int = 0
    ) -> int:
        """Put a key, and return the revision; 0 if there is no such lease."""
        with self.history.call(client, key, Put(value)) as noted:
            try:
                answer = calls.put(key, value, lease)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                noted.failed()
                return 0
            noted.returned(Written(answer.header.revision))
        self.heard()
        return int(answer.header.revision)

    def get(self, client: Hashable, calls: EtcdCalls, key: bytes) -> Read:
        """Read a key."""
        with self.history.call(client, key, Get()) as noted:
            answer = calls.range(key)
            read = read_of(answer.kvs, answer.header.revision)
            noted.returned(read)
        self.heard()
        return read

    @contextmanager
    def together(
        self, client: Hashable, keys: Sequence[bytes], action: Action[Any], transaction: Hashable
    ) -> Iterator[list[Call[Any]]]:
        """Record a call that does the same with several keys, as one transaction."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(self.history.call(client, key, action, transaction=transaction))
                for key in keys
            ]
        self.heard()

    # Leases.

    def grant(self, client: Hashable, calls: EtcdCalls, lease: int, ttl_s: int) -> int:
        """Grant a lease, of which there has been none with this number; return the revision."""
        self.terms_s[lease] = ttl_s
        seen = self.leases[lease] = LeaseHistory(lease)
        invoked = time.monotonic()
        try:
            answer = self.ask(client, f"grant {lease}", lambda: calls.grant(lease, ttl_s))
        except grpc.RpcError:
            seen.granted(ttl_s, invoked, None)
            raise
        seen.granted(answer.TTL, invoked, time.monotonic())
        return int(answer.header.revision)

    def renew(self, client: Hashable, calls: EtcdCalls, lease: int) -> bool:
        """Renew a lease; False if it is gone."""
        seen, ttl_s, invoked = self.leases[lease], self.terms_s[lease], time.monotonic()
        try:
            answer = self.ask(client, f"renew {lease}", lambda: calls.renew(lease))
        except grpc.RpcError:
            seen.renewed(ttl_s, invoked, None)
            raise
        if answer.TTL:
            assert ttl_s == answer.TTL
            seen.renewed(answer.TTL, invoked, time.monotonic())
        else:
            seen.refused(invoked, time.monotonic())
        return bool(answer.TTL)

    def may_end(self, lease: int, key: bytes) -> None:
        """Note, before a key is put under a lease, that it may go with that by itself."""
        with self.history.call(f"the end of {lease}", key, Delete()) as noted:
            noted.lost()

    def revoke(
        self, client: Hashable, calls: EtcdCalls, lease: int, keys: Sequence[bytes] = ()
    ) -> int:
        """Revoke a lease which cannot have ended by itself, and which has these keys.

        Returns the revision.
        """
        seen, invoked = self.leases[lease], time.monotonic()
        with self.together(client, keys, Delete(), f"revoke {lease}") as noted:
            try:
                answer = self.ask(client, f"revoke {lease}", lambda: calls.revoke(lease))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    raise AssertionError(f"lease {lease} ended before its term did") from error
                seen.revoked(invoked, None)
                raise
            seen.revoked(invoked, time.monotonic())
            for each in noted:
                each.returned(Deleted(1, answer.header.revision))
        return int(answer.header.revision)

    def time_to_live(
        self, client: Hashable, calls: EtcdCalls, lease: int
    ) -> pb.LeaseTimeToLiveResponse:
        """Ask for a lease, with its keys."""
        seen, invoked = self.leases[lease], time.monotonic()
        answer = self.ask(
            client, f"time to live of {lease}", lambda: calls.time_to_live(lease, keys=True)
        )
        note = seen.seen_gone if answer.TTL < 0 else seen.seen_alive
        note(invoked, time.monotonic())
        return answer

    def list_leases(self, client: Hashable, calls: EtcdCalls) -> None:
        """List all leases, and note which are there and which are not."""
        known, invoked = list(self.leases.items()), time.monotonic()
        answer = self.ask(client, "list leases", calls.leases)
        returned = time.monotonic()
        listed = {each.ID for each in answer.leases}
        for lease, seen in known:
            note = seen.seen_alive if lease in listed else seen.seen_gone
            note(invoked, returned)
        assert listed <= self.leases.keys(), f"nobody granted {listed - self.leases.keys()}"

    # The verdict.

    def check(self) -> None:
        """Check everything that is known."""
        _assert_none(check(self.history))
        for lease in self.leases.values():
            _assert_none(check_lease(lease))
            _assert_none(
                check_latest_end(
                    lease, slack_s=LATE_S, pauses=self.pauses, unanswered_s=UNANSWERED_S
                )
            )


def _assert_none(violation: Violation | None) -> None:
    assert violation is None, violation


def read_of(pairs: Sequence[Any], revision: int) -> Read:
    """Give what was read of one key."""
    if not pairs:
        return Read(None, 0, 0, 0, revision)
    [pair] = pairs
    return Read(pair.value, pair.mod_revision, pair.version, pair.create_revision, revision)


def put_op(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    """Give a put as part of a transaction."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def range_op(key: bytes, end: bytes = b"") -> pb.RequestOp:
    """Give a read as part of a transaction."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end))
