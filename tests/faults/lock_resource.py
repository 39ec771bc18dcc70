"""What locks protect: counters outside the lock service, which check fencing tokens.

A server of one connection for each worker, in threads of the test's own process, which no fault
meets with. Requests and answers are lines of JSON, such as

    {"what": "read", "lock": "a", "token": "12-1", "guard": "…", "key": "…", "late": false,
     "value": 0, "since": 10.1, "checked": 10.2}

`since` is when the guard was had, `checked` when its last check that passed was begun, both by a
clock that all processes share. The answer is the counter, or null to who is refused.

All that was admitted is written down, in order. And the resource can be a *trap*: the next reader
has no answer until it is let go, so it is surely between its read and its write.
"""

import json
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Self

from leasehold import Token
from leasehold.errors import StaleToken
from leasehold.fencing import Fence

HOST: Final = "127.0.0.1"
POLL_S: Final = 0.05
DEADLINE_S: Final = 90.0
"""How long anything may take on a machine with a lot else to do."""


class Operation(NamedTuple):
    """Something that was asked of a counter."""

    what: str
    """A "read" or a "write" that was admitted, or one that was "refused"."""
    lock: str
    token: Token
    guard: str
    """Process, client, worker and number of the guard; no two guards have the same."""
    value: int
    """What the counter was, or has become."""
    since: float
    checked: float
    key: str = ""
    late: bool = False
    """Whether the guard is checked once more before the write."""

    @property
    def process(self) -> str:
        """The process of the guard."""
        return self.guard.partition(":")[0]

    @property
    def client(self) -> str:
        """The client of the guard, of this process."""
        return ":".join(self.guard.split(":", 2)[:2])


class Trap:
    """Catches one reader, of those who check again before they write or of those who do not."""

    def __init__(self, *, late: bool) -> None:
        self.late = late
        self.caught: Operation | None = None
        self._released = threading.Event()

    def release(self) -> None:
        """Answer the reader."""
        self._released.set()

    def hold(self) -> None:
        """Wait until it may be answered."""
        self._released.wait(DEADLINE_S)


class Resource:
    """The counters, one for each lock, and their log."""

    def __init__(
        self, locks: Sequence[str], quiet: Sequence[str], *, is_fenced: bool = True
    ) -> None:
        self.locks = locks
        """Which everybody wants."""
        self.quiet = quiet
        """Which few want."""
        self.log: list[Operation] = []
        self._is_fenced = is_fenced
        self._values = dict.fromkeys([*locks, *quiet], 0)
        self._fences = {lock: Fence(name=lock) for lock in self._values}
        self._mutexes = {lock: threading.Lock() for lock in self._values}
        self._news = threading.Condition()
        self._trap: Trap | None = None
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.server_address[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(DEADLINE_S)
        self._server.server_close()

    # For the test.

    def wait_for(
        self, condition: Callable[[], bool], what: str, within_s: float = DEADLINE_S
    ) -> None:
        """Wait until something is so; it is looked at whenever the resource was used."""
        give_up_at = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < give_up_at, f"never: {what}, but {self._latest()}"
            with self._news:
                self._news.wait(POLL_S)

    def _latest(self) -> str:
        """Tell who has done what last, for who has to find out what went wrong."""
        latest = {each.client: each for each in self.log}
        return "\n".join(map(str, sorted(latest.values(), key=lambda each: each.checked)))

    def writes(self, since: int = 0) -> list[Operation]:
        """Give all writes that were admitted since the log had so many entries."""
        return [each for each in self.log[since:] if each.what == "write"]

    def catch(self, *, late: bool = False) -> tuple[Trap, Operation]:
        """Wait for somebody who reads what everybody wants, and do not answer."""
        trap = Trap(late=late)
        with self._news:
            self._trap = trap
        self.wait_for(lambda: trap.caught is not None, "somebody is caught in the trap")
        assert trap.caught is not None
        return trap, trap.caught

    # For its users.

    def perform(self, request: dict[str, Any]) -> int | None:
        """Do what is asked, if the token is admitted, and write it down in the same step."""
        lock, asked = request["lock"], _operation_of(request)
        try:
            with self._admitted(lock, asked.token):
                if asked.what == "write":
                    self._values[lock] = asked.value
                done = asked._replace(value=self._values[lock])
                self.log.append(done)
        except StaleToken:
            done = asked._replace(what="refused")
            self.log.append(done)
        trap = self._spring(done)
        if trap is not None:
            trap.hold()
        return None if done.what == "refused" else done.value

    def _admitted(self, lock: str, token: Token) -> AbstractContextManager[object]:
        return self._fences[lock].admitted(token) if self._is_fenced else self._mutexes[lock]

    def _spring(self, done: Operation) -> Trap | None:
        with self._news:
            self._news.notify_all()
            trap = self._trap
            if trap is None or (done.what, done.late) != ("read", trap.late):
                return None
            if done.lock in self.quiet:
                return None
            self._trap, trap.caught = None, done
            return trap


def _operation_of(request: dict[str, Any]) -> Operation:
    return Operation(**{**request, "token": Token.parse(request["token"])})


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        super().__init__((HOST, 0), _Connection)


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        try:
            for line in self.rfile:
                if not line.endswith(b"\n"):
                    return  # its process was killed in the middle
                answer = self.server.resource.perform(json.loads(line))
                self.wfile.write(json.dumps(answer).encode() + b"\n")
        except ConnectionError:  # its process was killed
            return
