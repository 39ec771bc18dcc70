"""The locks of all libraries, in turn: re-acquired, handed over, and contended."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.client.clients import Absent
from benchmarks.client.workers import Worker
from benchmarks.common.budget import rounds_within
from benchmarks.common.progress import tell
from benchmarks.etcd.servers import CannotStart, Server
from benchmarks.locks.contenders import CONTENDERS, NO_RECALL, interpreter_of
from benchmarks.locks.driving import CROWD, HAND_OVER, REACQUIRE, Order
from benchmarks.locks.scale import Scale
from benchmarks.locks.servers import SERVERS, running
from benchmarks.transport.samples import Cell, Figures, Run, in_turns

REACQUIRING, COUNTING, HANDING_OVER, CROWDING = "reacquire", "count", "hand-over", "crowd"
PARTS: Final = (REACQUIRING, HANDING_OVER, CROWDING)
"""Parts that can be selected; counting belongs to re-acquiring."""

COUNTING_TTL_S: Final = 60.0
"""Long enough that nothing is renewed while messages are counted."""

PROGRAM: Final = "benchmarks.locks.program"


@dataclass(slots=True)
class Contest:
    """The contest of one run."""

    run: Run
    scale: Scale
    directory: Path
    _workers: dict[str, Worker] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)

    def measure(self, parts: tuple[str, ...]) -> None:
        """Make all rounds of these parts."""
        with ExitStack() as stack:
            self._start_servers(stack)
            self._find_contenders(stack)
            if REACQUIRING in parts:
                self._all_in_turns(0, COUNTING)
            in_rounds = [part for part in (REACQUIRING, HANDING_OVER) if part in parts]
            if in_rounds:
                for number in rounds_within(self.scale.rounds, self.scale.contest_s):
                    tell(f"{' and '.join(in_rounds)}: round {number + 1} of {self.scale.rounds}")
                    for part in in_rounds:
                        self._all_in_turns(number, part)
            if CROWDING in parts:
                tell(f"{self.scale.clients} clients on one lock")
                self._all_in_turns(0, CROWDING)

    def _start_servers(self, stack: ExitStack) -> None:
        for name in SERVERS:
            try:
                self._servers[name] = stack.enter_context(running(name, self.directory))
            except CannotStart as error:
                self._leave_out(
                    (who for who, each in CONTENDERS.items() if each.server == name), str(error)
                )

    def _find_contenders(self, stack: ExitStack) -> None:
        for who, contender in CONTENDERS.items():
            if contender.server not in self._servers:
                continue
            found = interpreter_of(who)
            if isinstance(found, Absent):
                self._leave_out([who], found.why)
            else:
                self._workers[who] = worker = Worker(who, found, PROGRAM)
                stack.callback(worker.end)

    def _leave_out(self, whos: Iterable[str], why: str) -> None:
        for who in whos:
            tell(f"{who} is left out: {why}")
            self.run.missing.append(f"{who}: {why}")

    def _all_in_turns(self, number: int, part: str) -> None:
        whos = [who for who in self._workers if takes_part(who, part)]
        for who in in_turns(whos, number) if whos else ():
            self.run.take(number, Cell(part, part, who), partial(self._sample, part, who))

    def _sample(self, part: str, who: str) -> Figures:
        order = order_for(part, self.scale, self._servers[CONTENDERS[who].server])
        return self._workers[who].obey(order, self.scale.limit_s)


def takes_part(who: str, part: str) -> bool:
    """Whether a contender is in a part: recall makes a difference only to a crowd."""
    return part == CROWDING or who != NO_RECALL


def order_for(part: str, scale: Scale, server: Server) -> Order:
    """What is ordered for one sample."""
    if part == CROWDING:
        return Order(
            *(CROWD, 0.0, server.port, server.pid, scale.ttl_s),
            clients=scale.clients,
            turns=scale.turns,
            hold_s=scale.hold_s,
        )
    if part == HANDING_OVER:
        return Order(HAND_OVER, scale.hand_over_s, server.port, server.pid, scale.ttl_s)
    if part == COUNTING:
        return Order(
            *(REACQUIRE, 0.0, server.port, server.pid, COUNTING_TTL_S),
            is_counted=True,
            pairs=scale.counted_pairs,
        )
    return Order(REACQUIRE, scale.reacquire_s, server.port, server.pid, scale.ttl_s)
