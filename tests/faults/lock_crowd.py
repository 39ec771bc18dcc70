"""Twenty clients in a handful of processes, and the faults that meet with them.

Each process has a wire of its own to each server, so that it can be cut off alone.
"""

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, Self

import leasehold.sync
from leasehold.sessions.session import SESSIONS
from leasehold.testing import Wire
from leasehold.testing.background_loop import Background
from tests.faults.lock_process import Settings
from tests.faults.lock_resource import DEADLINE_S, Operation, Resource
from tests.support.stopping import go_on, stop

ROOT: Final = Path(__file__).parents[2]
LOG_TAIL_CHARS: Final = 6000
CLIENTS: Final = 4
SLACK_S: Final = 20.0
"""How much later than its term a lease may end, on a machine with a lot else to do."""

Kind = Literal["async", "sync"]

PROCESSES: Final[Sequence[tuple[Kind, int]]] = (
    *(("async", 1), ("async", 1), ("async", 2)),
    *(("sync", 1), ("sync", 2)),
)
"""The kind of each process, and how many workers share a client there; 20 clients in all."""


@dataclass(frozen=True)
class Member:
    """A process of the crowd."""

    settings: Settings
    process: "subprocess.Popen[bytes]"
    log: Path
    wires: list[Wire]

    def __str__(self) -> str:
        return f"{self.settings.name}:\n{self.log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}"


class Crowd:
    """The processes. They begin to work when it is entered."""

    def __init__(
        self,
        endpoints: Sequence[str],
        resource: Resource,
        directory: Path,
        *,
        ttl_s: float,
        seed: int,
        is_locking: bool = True,
    ) -> None:
        self.resource = resource
        self.ttl_s = ttl_s
        self._endpoints = endpoints
        self._directory = directory
        self._seed = seed
        self._is_locking = is_locking
        self._rng = random.Random(seed)
        self._members: dict[str, Member] = {}
        self._quiet = itertools.cycle(resource.quiet)
        self._started = 0
        self._background = Background("wires of a crowd")

    def __enter__(self) -> Self:
        try:
            for kind, workers in PROCESSES:
                self._start(kind, workers)
            self.progress()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.process.kill()
        for member in self._members.values():
            self._bury(member)
        self._background.close()

    def _start(self, kind: Kind, workers: int) -> None:
        self._started += 1
        name = f"{kind}-{self._started}"
        wires = [Wire(each, background=self._background) for each in self._endpoints]
        order = self._rng.sample(wires, len(wires))
        settings = Settings(
            name,
            [wire.endpoint for wire in order],
            self.resource.port,
            list(self.resource.locks),
            [next(self._quiet) for _ in range(CLIENTS)],
            kind,
            CLIENTS,
            workers,
            self.ttl_s,
            self._seed,
            self._is_locking,
        )
        log = self._directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  our own program
                [
                    *(sys.executable, "-W", "error", "-m", "tests.faults.lock_process"),
                    json.dumps(asdict(settings)),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )
        self._members[name] = Member(settings, process, log, wires)

    def _bury(self, member: Member) -> None:
        member.process.wait(DEADLINE_S)
        assert member.process.stdin is not None
        member.process.stdin.close()
        for wire in member.wires:
            wire.close()

    def _check_nobody_has_ended(self) -> None:
        ended = [each for each in self._members.values() if each.process.poll() is not None]
        assert not ended, "\n".join(map(str, ended))

    # How they are doing.

    def progress(self) -> None:
        """Wait until every client has had a lock once more, and every lock somebody."""
        everybody = {f"{name}:{each}" for name in self._members for each in range(CLIENTS)}
        since = len(self.resource.log)

        def have_all_written() -> bool:
            self._check_nobody_has_ended()
            have_written = {each.client for each in self.resource.writes(since)}
            return everybody <= have_written

        self.resource.wait_for(have_all_written, f"every client has written since entry {since}")
        self._wait_for_others("", since, self.resource.locks)

    def _wait_for_others(self, name: str, since: int, locks: Sequence[str]) -> None:
        def have_written() -> bool:
            self._check_nobody_has_ended()
            writes = self.resource.writes(since)
            return set(locks) <= {each.lock for each in writes if each.process != name}

        self.resource.wait_for(have_written, f"{locks} are used by others than {name!r}")

    def finish(self) -> None:
        """Have everybody get each lock once more, and end."""
        for member in self._members.values():
            assert member.process.stdin is not None
            member.process.stdin.close()
        for member in self._members.values():
            try:
                assert member.process.wait(DEADLINE_S) == 0, str(member)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"somebody is stuck: {member}") from None
            assert "Traceback" not in member.log.read_text(), str(member)

    # Faults. Each ends when others have had the lock of who met with it: after its term.

    def stop_holder(self, *, late: bool, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Stop a process between the read and the write of a guard, for longer than its term."""
        trap, caught = self.resource.catch(late=late)
        member, since = self._members[caught.process], len(self.resource.log)
        stop(member.process.pid)
        trap.release()
        try:
            meanwhile()
            self._wait_for_others(caught.process, since, [caught.lock])
        finally:
            go_on(member.process.pid)
        if not late:
            self._wait_for_write(caught)

    def _wait_for_end_of_session(self, caught: Operation) -> None:
        """Wait until the keys of the session of a guard, and its lease, are gone."""
        lease = caught.key.rpartition("/")[2]
        with leasehold.sync.connect(list(self._endpoints)) as client:

            def is_gone() -> bool:
                self._check_nobody_has_ended()
                leases = {each.id for each in client.leases()}
                session = client.kv.get(SESSIONS + lease.encode())
                return session is None and int(lease, 16) not in leases

            what = f"the session {lease} of {caught.process} is over"
            self.resource.wait_for(is_gone, what, self.ttl_s + SLACK_S)

    def _wait_for_write(self, caught: Operation) -> None:
        """Wait until a guard has tried to write."""

        def has_tried() -> bool:
            self._check_nobody_has_ended()
            tried = [each for each in list(self.resource.log) if each.what != "read"]
            return caught.guard in {each.guard for each in tried}

        self.resource.wait_for(has_tried, f"a write after {caught}")

    def kill_holder(self) -> None:
        """Kill a process between the read and the write of a guard, and start another one."""
        trap, caught = self.resource.catch(late=self._rng.random() < 0.5)
        member, since = self._members.pop(caught.process), len(self.resource.log)
        member.process.kill()
        trap.release()
        self._bury(member)
        assert "Traceback" not in member.log.read_text(), str(member)
        self._wait_for_end_of_session(caught)
        self._wait_for_others(caught.process, since, [caught.lock])
        self._start(member.settings.kind, member.settings.workers)
        self.progress()

    def cut_holder_off(self, direction: Literal["both", "to_server", "to_client"]) -> None:
        """Cut a process off from all servers, with a guard in use, for longer than its term."""
        trap, caught = self.resource.catch(late=self._rng.random() < 0.5)
        member, since = self._members[caught.process], len(self.resource.log)
        for wire in member.wires:
            wire.cut(direction)
        trap.release()
        self._wait_for_end_of_session(caught)
        self._wait_for_others(caught.process, since, self.resource.locks)
        has_reset = self._rng.random() < 0.5
        for wire in member.wires:
            wire.mend(reset=has_reset)

    def delay_calls(self) -> None:
        """Have calls of all processes arrive long after they were given up."""
        wires = [wire for member in self._members.values() for wire in member.wires]
        for wire in wires:
            wire.hold_current("to_server")
            wire.hang_up_held()
        self.progress()
        for wire in wires:
            wire.release_held()
