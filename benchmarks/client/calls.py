"""Calls: every client makes the same ones to the same etcd, in turns."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.client.clients import CLIENTS, Absent, interpreter_of
from benchmarks.client.driving import CALLS, GET, PUT, RENEW, Order
from benchmarks.client.scale import Scale
from benchmarks.client.workers import Worker
from benchmarks.common.budget import rounds_within
from benchmarks.common.progress import tell
from benchmarks.etcd.servers import ETCD, CannotStart, Server, running
from benchmarks.transport.samples import Cell, Figures, Run, in_turns

PART: Final = "calls"
IN_FLIGHT: Final = (1, 64)
TITLES: Final = {PUT: "Put", GET: "Get", RENEW: "lease renewal"}


def name_of(call: str, in_flight: int) -> str:
    """What a cell is called."""
    return f"{TITLES[call]}, {in_flight} in flight"


WHATS: Final = {
    name_of(call, in_flight): (call, in_flight) for call in CALLS for in_flight in IN_FLIGHT
}


@dataclass(slots=True)
class Calls:
    """The calls of one run."""

    run: Run
    scale: Scale
    directory: Path
    _workers: dict[str, Worker] = field(default_factory=dict)

    def measure(self) -> None:
        """Make all rounds."""
        self._find_clients()
        try:
            self._rounds()
        except CannotStart as error:
            tell(f"calls are left out: {error}")
            self.run.missing.append(f"calls: {error}")

    def _rounds(self) -> None:
        with ExitStack() as stack:
            for worker in self._workers.values():
                stack.callback(worker.end)
            server = stack.enter_context(running(ETCD, self.directory))
            for number in rounds_within(self.scale.rounds, self.scale.calls_s):
                tell(f"calls: round {number + 1} of {self.scale.rounds}")
                self._round(number, server)

    def _find_clients(self) -> None:
        for who in CLIENTS:
            found = interpreter_of(who)
            if isinstance(found, Absent):
                tell(f"{who} is left out: {found.why}")
                self.run.missing.append(f"{who}: {found.why}")
            else:
                self._workers[who] = Worker(who, found)

    def _round(self, number: int, server: Server) -> None:
        for what in WHATS:
            for who in in_turns(list(self._workers), number):
                self.run.take(number, Cell(PART, what, who), partial(self._call, what, who, server))

    def _call(self, what: str, who: str, server: Server) -> Figures:
        call, in_flight = WHATS[what]
        order = Order(call, in_flight, self.scale.seconds, server.port, server.pid)
        return self._workers[who].obey(order, self.scale.limit_s)
