"""From measurements to tables."""

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.common import results as common
from benchmarks.common.stats import Spread
from benchmarks.common.tables import Table, figure, spread
from benchmarks.transport import client_side, memory, server_side
from benchmarks.transport.client_side import OF_GRPCIO, OF_OURS
from benchmarks.transport.memory import MEMORY
from benchmarks.transport.samples import (
    BYTES_RATE,
    CPU_US,
    OFFERED,
    OTHER_CPU_US,
    P50_MS,
    P99_MS,
    RATE,
    RESIDENT,
    Cell,
    Cells,
    Sample,
    spread_of,
    times,
)
from benchmarks.transport.server_side import SERVER
from benchmarks.transport.servers import COROUTINE, GRPCIO_AIO, PLAIN
from benchmarks.transport.targets import REACHED, UNARY

NOTHING: Final = "-"
MB: Final = 1e-6
BESIDE: Final = f"times {GRPCIO_AIO}"
CPU: Final = "processor, µs"

UNARY_OF_SERVER: Final = tuple(
    what for what in server_side.UNARY if what != server_side.ECHO_STREAMS
)


Results = common.Results[Cell, Sample]


def tables(results: Results) -> list[Table]:
    """Every table of the report, in order; those of parts that were not measured are left out."""
    cells = results.cells
    made = [
        target_table(results),
        _server_unary(cells),
        _paced(cells),
        _server_streaming(cells),
        _second_opinion(cells),
        _client_unary(cells, OF_OURS, "Client: unary calls to our server"),
        _client_unary(cells, OF_GRPCIO, "Client: unary calls to the server of grpcio aio"),
        _client_streaming(cells),
        _memory(cells),
    ]
    return [table for table in made if table.rows]


def rounds_line(samples: Iterable[Sequence[Sample]]) -> str:
    """How many rounds there were, and in how many samples of them the machine's speed changed."""
    groups = [group for group in samples if group]
    if not groups:
        return "no rounds"
    most, fewest = max(map(len, groups)), min(map(len, groups))
    rounds = f"{most}" if most == fewest else f"{fewest} to {most}"
    total = sum(map(len, groups))
    unsteady = sum(not each.steady for group in groups for each in group)
    return (
        f"{rounds} rounds, median and quartiles; in {unsteady} of {total} samples the machine's "
        "speed changed"
    )


def _rounds_of(cells: Cells, part: str, whats: Iterable[str]) -> str:
    wanted = set(whats)
    return rounds_line(
        samples for cell, samples in cells.items() if cell.part == part and cell.what in wanted
    )


def shown(samples: Sequence[Sample], name: str, factor: float = 1.0) -> str:
    """One figure with its spread; a dash if it was not measured."""
    found = [each for each in samples if name in each.figures]
    return spread(spread_of(found, name).scaled(factor)) if found else NOTHING


def beside_grpcio(cells: Cells, cell: Cell, name: str) -> Spread | None:
    """How many times the figure of grpcio aio a figure is."""
    bases = cells.get(Cell(cell.part, cell.what, GRPCIO_AIO))
    samples = cells.get(cell)
    return times(samples, bases, name) if samples and bases else None


def _times(cells: Cells, cell: Cell, name: str) -> str:
    found = None if cell.who == GRPCIO_AIO else beside_grpcio(cells, cell, name)
    return NOTHING if found is None else spread(found)


def _whos(cells: Cells, part: str, what: str) -> list[Cell]:
    return [cell for cell in cells if cell.part == part and cell.what == what and cells[cell]]


def _rows(
    cells: Cells,
    part: str,
    whats: Iterable[str],
    columns: Sequence[tuple[str, float]],
    compared: Sequence[str],
) -> list[list[str]]:
    """A row for each that was measured: its figures, and how they compare."""
    rows = []
    for what in whats:
        for number, cell in enumerate(sorted(_whos(cells, part, what), key=_place)):
            row = ["" if number else what, cell.who]
            row += [shown(cells[cell], name, factor) for name, factor in columns]
            row += [_times(cells, cell, name) for name in compared]
            rows.append(row)
    return rows


_ORDER: Final = (*dict.fromkeys((*server_side.SERVERS, *client_side.CLIENTS, *memory.SERVERS)),)


def _place(cell: Cell) -> int:
    """The position in a table: ours first, in any order of measurement."""
    ours_first = sorted(_ORDER, key=lambda who: "grpcio" in who)
    return ours_first.index(cell.who)


# Targets.


def target_table(results: Results) -> Table:
    """The targets, with the measured figures."""
    cells = results.cells
    rows = []
    for who in (PLAIN, COROUTINE):
        rows += [_asked(cells, Cell(SERVER, what, who), "server") for what in UNARY_OF_SERVER]
    for who in (client_side.ON_ASYNCIO, client_side.ON_UVLOOP):
        rows += [_asked(cells, Cell(OF_OURS, what, who), "client") for what in client_side.UNARY]
    found = [row for row in rows if row is not None]
    headings = ["", "calls/s", f"{GRPCIO_AIO}, calls/s", BESIDE, "target", ""]
    note = (
        f"{_count_reached(found, 5)} by calls in a second, {_count_reached(found, 7)} by processor "
        "time, which other processes disturb less; median over the rounds (quartiles), both taken "
        "round by round"
    )
    missing = [f"missing: {each}" for each in results.missing]
    headings += ["times less processor time", ""]
    return Table("Targets", headings, found, "; ".join([note, *missing]))


def _count_reached(rows: Sequence[Sequence[str]], column: int) -> str:
    return f"{sum(row[column] == REACHED for row in rows)} of {len(rows)} reached"


def _asked(cells: Cells, cell: Cell, side: str) -> list[str] | None:
    samples, bases = cells.get(cell), cells.get(Cell(cell.part, cell.what, GRPCIO_AIO))
    if not samples or not bases:
        return None
    rate, saved = times(samples, bases, RATE), times(bases, samples, CPU_US)
    return [
        f"{side}, {cell.who}: {cell.what}",
        shown(samples, RATE),
        shown(bases, RATE),
        *((NOTHING, str(UNARY), NOTHING) if rate is None else _verdict(rate)),
        *((NOTHING, NOTHING) if saved is None else (spread(saved), UNARY.verdict(saved))),
    ]


def _verdict(measured: Spread) -> tuple[str, str, str]:
    return spread(measured), str(UNARY), UNARY.verdict(measured)


# The server.


def _server_unary(cells: Cells) -> Table:
    columns = [(RATE, 1.0), (P50_MS, 1.0), (P99_MS, 1.0), (CPU_US, 1.0), (OTHER_CPU_US, 1.0)]
    rows = _rows(cells, SERVER, UNARY_OF_SERVER, columns, (RATE, CPU_US))
    headings = ["", "server", "calls/s", "p50, ms", "p99, ms", CPU, "load's own, µs"]
    note = (
        f"{_rounds_of(cells, SERVER, UNARY_OF_SERVER)}; processor time of the server for each "
        "call, with that of its threads, and of the load that shares the machine with it"
    )
    title = "Server: unary calls of 32 bytes"
    return Table(title, [*headings, BESIDE, f"processor, {BESIDE}"], rows, note)


def _paced(cells: Cells) -> Table:
    whats = [server_side.PACED]
    columns = [(OFFERED, 1.0), (P50_MS, 1.0), (P99_MS, 1.0), (CPU_US, 1.0)]
    rows = [row[1:] for row in _rows(cells, SERVER, whats, columns, (P50_MS, P99_MS))]
    headings = ["server", "calls made in a second", "p50, ms", "p99, ms", CPU]
    headings += [f"p50, {BESIDE}", f"p99, {BESIDE}"]
    note = (
        f"{_rounds_of(cells, SERVER, whats)}; calls are sent at half of the maximum rate of "
        "grpcio aio, on 10 connections with changing headers, regardless of responses, and "
        "latency counts from when they were due"
    )
    return Table("Server: latency at a fixed rate", headings, rows, note)


def _server_streaming(cells: Cells) -> Table:
    whats = [server_side.ECHO_STREAMS, server_side.DOWNLOAD]
    columns = [(RATE, 1.0), (BYTES_RATE, MB), (CPU_US, 1.0), (OTHER_CPU_US, 1.0)]
    rows = _rows(cells, SERVER, whats, columns, (RATE, CPU_US))
    headings = ["", "server", "messages/s", "MB/s", CPU, "load's own, µs"]
    note = f"{_rounds_of(cells, SERVER, whats)}; processor time for each message"
    return Table("Server: streams", [*headings, BESIDE, f"processor, {BESIDE}"], rows, note)


def _second_opinion(cells: Cells) -> Table:
    whats = [server_side.BY_H2LOAD]
    columns = [(RATE, 1.0), (CPU_US, 1.0), (OTHER_CPU_US, 1.0)]
    rows = [row[1:] for row in _rows(cells, SERVER, whats, columns, (RATE, CPU_US))]
    headings = ["server", "calls/s", CPU, "h2load's own, µs", BESIDE, f"processor, {BESIDE}"]
    note = (
        f"{_rounds_of(cells, SERVER, whats)}; 10 connections with 32 calls in flight each, the "
        "same headers in each call"
    )
    return Table("Server: the same from h2load", headings, rows, note)


# The client.


def _client_unary(cells: Cells, part: str, title: str) -> Table:
    whats = list(client_side.UNARY)
    columns = [(RATE, 1.0), (P50_MS, 1.0), (P99_MS, 1.0), (CPU_US, 1.0)]
    rows = _rows(cells, part, whats, columns, (RATE, CPU_US))
    headings = ["", "client", "calls/s", "p50, ms", "p99, ms", CPU]
    note = (
        f"{_rounds_of(cells, part, whats)}; processor time of the client for each call, with that "
        "of its threads"
    )
    if part == OF_GRPCIO:
        note += "; the server takes most of the time here, for every client"
    return Table(title, [*headings, BESIDE, f"processor, {BESIDE}"], rows, note)


def _client_streaming(cells: Cells) -> Table:
    whats = [client_side.ECHO_STREAM, client_side.DOWNLOAD]
    columns = [(RATE, 1.0), (BYTES_RATE, MB), (CPU_US, 1.0)]
    rows = []
    for part, server in ((OF_OURS, "our server"), (OF_GRPCIO, "grpcio's server")):
        made = _rows(cells, part, whats, columns, (RATE, CPU_US))
        rows += [[f"{row[0]}, {server}" if row[0] else "", *row[1:]] for row in made]
    headings = ["", "client", "messages/s", "MB/s", CPU, BESIDE, f"processor, {BESIDE}"]
    note = f"{_rounds_of(cells, OF_OURS, whats)}; processor time of the client for each message"
    return Table("Client: streams", headings, rows, note)


# Memory.


def _memory(cells: Cells) -> Table:
    whats = list(dict.fromkeys(cell.what for cell in cells if cell.part == MEMORY))
    rows = _rows(cells, MEMORY, whats, [(RESIDENT, 1.0)], (RESIDENT,))
    note = (
        f"{_rounds_of(cells, MEMORY, whats)}; growth of the server's process, in a fresh process "
        f"each time, after {figure(memory.WARM_UP)} connections that are not counted"
    )
    headings = ["", "server", "bytes for each", BESIDE]
    return Table("Bytes of an idle connection", headings, rows, note)
