"""Very many leases that end together: how long until the last of their keys is gone.

Each lease has a key, and one watch sees them go. All leases are renewed at the end, on one stream
as fast as it takes them, so that they end together. Lateness counts from the moment at which the
renewal was sent, plus the term: so the way there is in it, for both servers.
"""

from collections.abc import Iterator, Sequence
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.common.stats import quantile
from benchmarks.etcd import messages
from benchmarks.etcd.connection import Connection, LoadFailed
from benchmarks.etcd.control import Control
from benchmarks.etcd.load import Load
from benchmarks.etcd.samples import EXPIRY, LAST_S, MEDIAN_S, Cell, Figures
from benchmarks.etcd.script import DATA, MESSAGE_PREFIX, HeaderWriter, frame, timeouts, with_prefix
from benchmarks.etcd.servers import Server
from benchmarks.etcd.workloads import CASES, Unverified, Workload

PREFIX: Final = b"ending/"
CHUNK: Final = 5_000
"""Leases that are made before all are renewed: none may end while the others are made."""

MAX_IN_FLIGHT: Final = 500
"""Renewals that are in flight."""


def cell_of(leases: int) -> Cell:
    """The cell for a number of leases."""
    return Cell(EXPIRY, f"{leases:,} leases")


class Grants(Workload):
    """Leases with numbers from a first one on."""

    path = messages.LEASE_GRANT
    ttl_s: int
    ids: range

    def prepare(self) -> None:
        """Nothing is needed."""

    def body(self) -> bytes:
        """Never called for."""
        raise NotImplementedError

    def bodies(self, connection: int) -> Iterator[bytes]:
        """Each connection takes every so-manieth."""
        for lease_id in self.ids[connection :: CASES["grant"].connections]:
            yield messages.lease_grant_request(self.ttl_s, lease_id)

    def verify(self, _done: int, _samples: Sequence[bytes]) -> str:
        """The events show it."""
        return ""


class KeysOfThem(Grants):
    """A key for each."""

    path = messages.PUT

    def bodies(self, connection: int) -> Iterator[bytes]:
        """Each connection takes every so-manieth."""
        for lease_id in self.ids[connection :: CASES["grant"].connections]:
            yield messages.put_request(PREFIX + b"%d" % lease_id, b"", lease_id)


def make_leases(port: int, ids: range, ttl_s: int, *, with_keys: bool) -> None:
    """Grant leases with these ids, each with a key if requested."""
    control = Control(port)
    for kind in (Grants, KeysOfThem) if with_keys else (Grants,):
        workload = kind(control)
        workload.ids, workload.ttl_s = ids, ttl_s
        load = Load(port, CASES["grant"], changing=True)
        made = load.make_all(workload, len(ids))
        if made != len(ids):
            raise Unverified(f"{made} of {len(ids)} were made")
        load.close()
    control.close()


class Stream(Connection):
    """One stream that stays open; messages come in whole."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(port)
        self.handshake()
        headers = HeaderWriter(f"127.0.0.1:{port}", timeouts(Random(0)), self.table_size)
        self._send(headers.next_frame(1, path, is_timed=False))
        self.own_window = self.stream_window
        self.messages: list[bytes] = []
        self._partial = bytearray()

    def say(self, body: bytes) -> int:
        """Send a message; returns what it takes of the windows."""
        data = with_prefix(body)
        self.sock.sendall(frame(DATA, 0, 1, data))
        self.window -= len(data)
        self.own_window -= len(data)
        return len(data)

    def _stream_window(self, _stream: int, more: int) -> None:
        self.own_window += more

    def _ended(self, stream: int, _now: float) -> int:
        raise LoadFailed(f"stream {stream} was to stay open, and ended")

    def _data(self, _stream: int, data: bytes, start: int, end: int, _now: float) -> int:
        have = self._partial
        have += data[start:end]
        position = found = 0
        while len(have) - position >= MESSAGE_PREFIX:
            size = int.from_bytes(have[position + 1 : position + MESSAGE_PREFIX], "big")
            after = position + MESSAGE_PREFIX + size
            if len(have) < after:
                break
            self.messages.append(bytes(have[position + MESSAGE_PREFIX : after]))
            position = after
            found += 1
        del have[:position]
        return found


class Renewals(Stream):
    """Renews leases, and records when each renewal was sent."""

    def __init__(self, port: int) -> None:
        super().__init__(port, messages.LEASE_KEEP_ALIVE)
        self.sent_at: dict[int, float] = {}

    def renew(self, ids: Sequence[int]) -> None:
        """Begin a new term of all of them."""
        waiting = done = 0
        for lease_id in ids:
            while waiting >= MAX_IN_FLIGHT or min(self.window, self.own_window) < 64:
                waiting -= self.receive(0.0)
            self.sent_at[lease_id] = perf_counter()
            self.say(messages.lease_request(lease_id))
            waiting += 1
        while waiting:
            waiting -= self.receive(0.0)
        for answer in self.messages:
            done += messages.lease_id_and_ttl_s(answer)[1] > 0
        if done != len(ids):
            raise Unverified(f"{len(ids) - done} of {len(ids)} leases have ended meanwhile")
        self.messages.clear()


class Watcher(Stream):
    """Sees keys go."""

    def __init__(self, port: int) -> None:
        super().__init__(port, messages.WATCH)
        watch = messages.message(PREFIX, messages.prefix_end(PREFIX), None, None, PUTS_LEFT_OUT)
        self.say(messages.message(watch))
        while not self.receive(0.0):
            pass
        self.messages.clear()

    def wait(self, leases: int, deadline: float) -> dict[int, float]:
        """Take events until all are gone; when each of them was.

        What came when is looked at afterwards: that must not hold up what comes next.
        """
        arrived: list[tuple[float, bytes]] = []
        gone = 0
        while gone < leases:
            self.sock.settimeout(max(0.01, deadline - perf_counter()))
            try:
                self.receive(0.0)
            except TimeoutError:
                raise LoadFailed(f"{leases - gone} of {leases} keys are still there") from None
            now = perf_counter()
            arrived += [(now, answer) for answer in self.messages]
            gone += sum(answer.count(PREFIX) for answer in self.messages)
            self.messages.clear()
        return {
            int(messages.parts(messages.parts(event, 2)[0], 1)[0].removeprefix(PREFIX)): at
            for at, answer in arrived
            for event in messages.parts(answer, 11)
        }


PUTS_LEFT_OUT: Final = b"\0"
"""The filter NOPUT, which is number 0 in a packed list."""


def measure_expiry(server: Server, leases: int, ttl_s: int, most_s: float) -> Figures:
    """Have so many leases end together on one server; all must be gone within `most_s` then."""
    renewals, watcher = Renewals(server.port), Watcher(server.port)
    for first in range(1, leases + 1, CHUNK):
        ids = range(first, min(first + CHUNK, leases + 1))
        make_leases(server.port, ids, ttl_s, with_keys=True)
        renewals.renew(range(1, ids.stop))
    renewals.renew(range(1, leases + 1))
    deadline = perf_counter() + ttl_s + most_s
    gone_at = watcher.wait(leases, deadline)
    late_s = [at - renewals.sent_at[lease] - ttl_s for lease, at in gone_at.items()]
    if len(late_s) != leases:
        raise Unverified(f"{len(late_s)} keys are gone, and not {leases}")
    if min(late_s) < 0.0:
        raise Unverified(f"a lease ended {-min(late_s):.3f} s before its time")
    return {LAST_S: max(late_s), MEDIAN_S: quantile(late_s, 0.5)}
