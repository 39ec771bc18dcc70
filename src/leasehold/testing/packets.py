"""Packets between hosts: lost, duplicated, late and out of order, according to the link's faults.

A packet leaves at the sender's present (after its stall, if it is in one; never, if it crashed
before), and is lost if the link is cut when it leaves or when it would arrive. Each copy draws a
separate delay, which also reorders packets.

Hosts share no objects: a snapshot is taken when a message leaves (the sender may change the object
afterwards) and a copy of it is made at each arrival (two receivers of a duplicate share nothing
either). It is a pickle, with two exceptions. Classes and functions go by reference, so that tests
may use local ones. And exceptions are rebuilt without calling their class: pickle would pass the
formatted message as the argument, and the class would format it again.
"""

import io
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from leasehold.testing.host import Host, World

_BY_REFERENCE = (type, FunctionType, BuiltinFunctionType, ModuleType)


class Snapshot:
    """The state of `value` at creation."""

    __slots__ = ("_bytes", "_references")

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        self._references: list[Any] = []
        _Pickler(file, self._references).dump(value)
        self._bytes = file.getvalue()

    def copy(self) -> Any:
        """Return a copy of that state."""
        return _Unpickler(io.BytesIO(self._bytes), self._references).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, references: list[Any]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._references = references

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, _BY_REFERENCE):
            return None
        self._references.append(obj)
        return len(self._references) - 1

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException):
            return _rebuild, (type(obj), obj.args, obj.__dict__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, references: list[Any]) -> None:
        super().__init__(file)
        self._references = references

    def persistent_load(self, pid: Any) -> Any:
        return self._references[pid]


def _rebuild(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    """Make an exception as its builtin base would, then set its attributes."""
    base = next(parent for parent in kind.__mro__ if parent.__module__ == "builtins")
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)  # type: ignore[misc]  # OSError keeps its errno there
    error.args = args
    error.__dict__.update(state)
    return error


Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults of each message on a link: probabilities, and ranges of seconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    delay: Range = (0.0005, 0.005)
    spike: float = 0.0
    spike_delay: Range = (0.1, 1.0)

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "spike"):
            _check_probability(name, getattr(self, name))
        for name in ("delay", "spike_delay"):
            _check_range(name, getattr(self, name))


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be a probability from 0 to 1, not {value!r}")


def _check_range(name: str, value: Range) -> None:
    low, high = value
    if not 0.0 <= low <= high < float("inf"):
        raise ValueError(f"{name} must be (low, high) with 0 <= low <= high, not {value!r}")


# A host reaches itself without a link.
LOOPBACK = Faults(delay=(0.00001, 0.0001))


@dataclass(frozen=True, slots=True)
class Partition:
    """Messages between hosts of different groups are lost.

    One-way, only messages from the first group to the second are lost. A single group is cut from
    all other hosts.
    """

    groups: tuple[frozenset[str], ...]
    one_way: bool

    def blocks(self, src: str, dst: str) -> bool:
        """Whether a message from `src` to `dst` is lost."""
        src_group, dst_group = self._group(src), self._group(dst)
        if self.one_way:
            return (src_group, dst_group) == (0, 1)
        if len(self.groups) == 1:
            return src_group != dst_group
        return None not in (src_group, dst_group) and src_group != dst_group

    def _group(self, name: str) -> int | None:
        return next((i for i, group in enumerate(self.groups) if name in group), None)


@dataclass(slots=True)
class Counters:
    """The outcomes of the packets so far."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0


class Packets:
    """Transmits packets between all pairs of hosts."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world = world
        self.default = faults
        self.counters = Counters()
        self._links: dict[tuple[str, str], Faults] = {}
        self._cuts: list[Partition] = []

    # Settings.

    def set_link(self, src: Host, dst: Host, faults: Faults | None) -> None:
        """Override the default from `src` to `dst`; None restores it."""
        if faults is None:
            self._links.pop((src.name, dst.name), None)
        else:
            self._links[src.name, dst.name] = faults

    def faults(self, src: Host, dst: Host) -> Faults:
        """Return the current faults from `src` to `dst`."""
        standard = LOOPBACK if src is dst else self.default
        return self._links.get((src.name, dst.name), standard)

    def cut(self, groups: Iterable[Iterable[Host]], *, one_way: bool) -> None:
        """Add a partition."""
        names = tuple(frozenset(host.name for host in group) for group in groups)
        self._cuts.append(Partition(names, one_way))
        self.world.record(f"cut {[sorted(group) for group in names]} one_way={one_way}")

    def heal(self) -> None:
        """End all partitions."""
        self._cuts.clear()
        self.world.record("heal")

    def blocked(self, src: Host, dst: Host) -> bool:
        """Whether the link from `src` to `dst` is cut now."""
        return src is not dst and any(cut.blocks(src.name, dst.name) for cut in self._cuts)

    # Traffic.

    def send(self, src: Host, dst: Host, what: str, arrive: Callable[[], bool]) -> None:
        """Send a packet from the process on `src`; `arrive` returns whether it was received."""
        self.when_sent(src, lambda: self.transmit(src, dst, what, arrive))

    def when_sent(self, src: Host, leave: Callable[[], None]) -> None:
        """Run `leave` at the sender's present, unless it is down by then."""
        ahead = src.now - self.world.now
        incarnation = src.incarnation

        def leave_if_alive() -> None:
            if not src.down and src.incarnation == incarnation:
                leave()

        if ahead > 0:
            self.world.carry(ahead, leave_if_alive)
        else:
            leave_if_alive()

    def transmit(self, src: Host, dst: Host, what: str, arrive: Callable[[], bool]) -> None:
        """Transmit a packet, from a process or a kernel."""
        faults, random = self.faults(src, dst), self.world.random
        self.counters.sent += 1
        copies = 1
        if faults.duplicate and random.random() < faults.duplicate:
            self.counters.duplicated += 1
            copies = 2
        for _ in range(copies):
            if self.blocked(src, dst) or (faults.loss and random.random() < faults.loss):
                self._lose(dst, what)
            else:
                self.world.carry(self.delay(src, dst), lambda: self._arrive(src, dst, what, arrive))

    def delay(self, src: Host, dst: Host) -> float:
        """Draw the delay of a packet."""
        faults, random = self.faults(src, dst), self.world.random
        delay = random.uniform(*faults.delay)
        if faults.spike and random.random() < faults.spike:
            delay += random.uniform(*faults.spike_delay)
        return delay

    def _arrive(self, src: Host, dst: Host, what: str, arrive: Callable[[], bool]) -> None:
        if self.blocked(src, dst) or not arrive():
            self._lose(dst, what)
        else:
            self.counters.delivered += 1
            self.world.record(f"arrives: {what}", dst.name)

    def _lose(self, dst: Host, what: str) -> None:
        self.counters.lost += 1
        self.world.record(f"lost: {what}", dst.name)
