"""Rounds of single-writer files: writer processes that are killed or stopped while they write.

In each round a few writers have one file, one after the other. All but the last one are killed, or
stopped and continued after the next one has the file. Several rounds are played at the same time; a
replica store may fail for all of them, and return later.
"""

import itertools
import multiprocessing
import random
import shutil
import string
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.faults.etcd_calls import EtcdCalls
from tests.faults.file_judge import FileJudge, Written, judge
from tests.faults.file_writer import Settings, write_records
from tests.support import stopping

PROCESSES: Final = multiprocessing.get_context("forkserver")
"""Forks of one process, so that each of them need not import everything."""
PROCESSES.set_forkserver_preload(["tests.faults.file_writer"])

DEADLINE_S: Final = 120.0
"""For each step of a round; it passes only if something hangs."""

MAX_FLUSHES: Final = 25
MAX_DELAY_S: Final = 0.03
STORES: Final = 3

Trigger = Literal["opening", "flushed", "closing"]
StoreFault = Literal["replaced", "removed"]


@dataclass(frozen=True)
class Part:
    """The part of one writer in a round."""

    flushes: int
    trigger: Trigger | None = None
    """The report after which it is disturbed; None for the last writer."""
    count: int = 1
    """How many of these reports."""
    delay_s: float = 0.0
    is_killed: bool = True
    """Otherwise it is stopped."""
    continues_late: bool = False
    """Whether a stopped one continues at the end, or when the next one has the file."""


@dataclass(frozen=True)
class StorePlan:
    """A replica store that fails for some time."""

    number: int
    fault: StoreFault
    after_s: float
    for_s: float


def part(rng: random.Random) -> Part:
    """Draw the part of a writer that is disturbed."""
    trigger: Trigger = rng.choice(("opening", "flushed", "flushed", "flushed", "closing"))
    flushes = rng.randint(1, 6) if trigger == "closing" else MAX_FLUSHES + 5
    return Part(
        flushes,
        trigger,
        rng.randint(1, MAX_FLUSHES) if trigger == "flushed" else 1,
        rng.uniform(0, MAX_DELAY_S),
        is_killed=rng.random() < 0.5,
        continues_late=rng.random() < 0.5,
    )


def parts(rng: random.Random) -> list[Part]:
    """Draw the parts of a round."""
    disturbed = [part(rng) for _ in range(rng.choice((1, 1, 2)))]
    return [*disturbed, Part(rng.randint(1, 6))]


def store_plan(rng: random.Random) -> StorePlan:
    """Draw the failure of a store."""
    return StorePlan(
        rng.randrange(STORES),
        rng.choice(("replaced", "removed")),
        rng.uniform(0, 1.5),
        rng.uniform(0.2, 4.0),
    )


class WriterProcess:
    """A writer, and its reports so far."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._log = log
        self._connection, other = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=write_records, args=(settings, other, log))
        self._process.start()
        other.close()
        assert self._process.pid is not None
        self._pid = self._process.pid
        self.written = Written(settings.writer)
        self._lines: list[str] = []
        self._has_ended = False
        self._news = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with suppress(EOFError, ConnectionResetError):
            while True:
                words = self._connection.recv_bytes().decode().split()
                with self._news:
                    self._take(words)
                    self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def _take(self, words: Sequence[str]) -> None:
        self._lines.append(" ".join(words))
        match words:
            case ["open", length]:
                self.written.opened_at = int(length)
            case ["flushed" | "closed", number, length]:
                self.written.flushed.append((int(number), int(length)))

    def count(self, word: str) -> int:
        """Return the number of reports that begin with a word."""
        return sum(line.split()[0] == word for line in self._lines)

    def wait_for(self, word: str, count: int = 1) -> bool:
        """Wait for a report; False if the process has ended without it."""
        with self._news:
            assert self._news.wait_for(
                lambda: self._has_ended or self.count(word) >= count, DEADLINE_S
            ), f"never {word!r} {count} times: {self.story()}"
            return self.count(word) >= count

    def begin(self) -> None:
        """Have it open the file."""
        self._connection.send_bytes(b"begin")

    def disturb(self, part: Part) -> None:
        """Kill or stop it at the moment that is drawn for it."""
        assert part.trigger is not None
        self.wait_for(part.trigger, part.count)
        time.sleep(part.delay_s)  # the moment of the fault
        if part.is_killed:
            self._process.kill()
        elif self._process.is_alive():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just closed the file
                stopping.stop(self._pid)

    def go_on(self) -> None:
        """Continue it after a stop."""
        if self._process.is_alive():
            with suppress(ProcessLookupError):
                stopping.go_on(self._pid)

    def wait(self) -> int | None:
        """Wait until it has ended, and return its exit code."""
        self._process.join(DEADLINE_S)
        self._listener.join(DEADLINE_S)
        return self._process.exitcode

    def story(self) -> str:
        """Return what it has reported and logged."""
        log = self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""
        return f"writer {self.written.writer}: {self._lines[-40:]}\n{log}"

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self.wait()
        self._process.close()
        self._connection.close()


class StoreDirectory:
    """A replica store that can fail: a symbolic link, which is replaced in one step."""

    def __init__(self, directory: Path, number: int) -> None:
        self._real = directory / f"real-{number}"
        self._file = directory / f"file-{number}"
        self._empty = directory / f"empty-{number}"
        self.path = directory / f"store-{number}"
        self._real.mkdir(parents=True)
        self._file.write_bytes(b"not a directory")
        self.path.symlink_to(self._real)

    def _lead_to(self, target: Path) -> None:
        link = self.path.with_suffix(".new")
        link.symlink_to(target)
        link.replace(self.path)

    def fail(self, plan: StorePlan, ended: threading.Event) -> None:
        """Fail after some time, and return later, or when `ended` is set.

        A store that is removed is an empty directory meanwhile, as where a disk was unmounted.
        """
        if ended.wait(plan.after_s):
            return
        if plan.fault == "removed":
            shutil.rmtree(self._empty, ignore_errors=True)
            self._empty.mkdir()
        self._lead_to(self._file if plan.fault == "replaced" else self._empty)
        ended.wait(plan.for_s)
        self._lead_to(self._real)


class Round:
    """One file, and its writers."""

    def __init__(self, endpoint: str, path: str, plan: Sequence[Part], directory: Path) -> None:
        self.path = path
        self.plan = plan
        self.writers = [
            WriterProcess(
                Settings(endpoint, path, letter, f"{path}-{letter}", part.flushes),
                directory / f"{path.replace('/', '-')}-{letter}.log",
            )
            for letter, part in zip(string.ascii_uppercase, plan, strict=False)
        ]

    def play(self) -> None:
        """Have the writers write, one after the other."""
        pairs = list(zip(self.writers, self.plan, strict=True))
        for (writer, part), (after, _) in itertools.pairwise(pairs):
            assert writer.wait_for("ready"), writer.story()
            writer.begin()
            writer.disturb(part)
            after.wait_for("ready")
            after.begin()
            if not part.is_killed and not part.continues_late:
                after.wait_for("open")
                writer.go_on()
        last, _ = pairs[-1]
        assert last.wait_for("closed"), f"the last writer has failed: {last.story()}"
        for writer, part in pairs:
            if part.is_killed and part.trigger is not None:
                writer.wait()
                continue
            writer.go_on()
            assert writer.wait() == 0, f"a writer has failed: {writer.story()}"
            is_known = writer.count("lost") or writer.count("closed")
            assert is_known, f"a stopped writer has neither lost nor closed: {writer.story()}"

    def end(self) -> None:
        """End all processes."""
        for writer in self.writers:
            writer.end()


def play_together(
    endpoint: str,
    stores: Sequence[StoreDirectory],
    directory: Path,
    wave: str,
    rounds: int,
    *,
    has_store_fault: bool,
) -> list[str]:
    """Play some rounds at the same time; return a text for each one that went wrong."""
    rng = random.Random(wave)
    fault = store_plan(rng) if has_store_fault else None
    played = [
        Round(endpoint, f"rounds/{wave}/{number}", parts(rng), directory)
        for number in range(rounds)
    ]
    wrong: list[str] = []
    ended = threading.Event()
    try:
        with ThreadPoolExecutor(rounds + 1) as executor:
            results = [executor.submit(each.play) for each in played]
            failing = executor.submit(stores[fault.number].fail, fault, ended) if fault else None
            wait(results)
            ended.set()
        if failing is not None:
            failing.result()
        with EtcdCalls(endpoint) as calls:
            for each, result in zip(played, results, strict=True):
                try:
                    result.result()
                    _judge(FileJudge(calls), each, stores, fault)
                except AssertionError as error:
                    stories = "\n".join(writer.story() for writer in each.writers)
                    wrong.append(f"{each.path}: {error}\n{each.plan}\n{fault}\n{stories}")
    finally:
        for each in played:
            each.end()
    return wrong


def _judge(
    files: FileJudge, played: Round, stores: Sequence[StoreDirectory], fault: StorePlan | None
) -> None:
    lost = ""
    if fault is not None and fault.fault == "removed":
        path = stores[fault.number].path
        lost = next(each for each, found in files.directories().items() if found == path)
    content = files.content_of(played.path, lost=lost, replicas=1 if fault else STORES)
    judge(content, [writer.written for writer in played.writers])
