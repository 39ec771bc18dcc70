"""What a link does to messages, and which links are cut."""

from dataclasses import dataclass

Range = tuple[float, float]


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be a probability from 0 to 1, not {value!r}")


def _check_range(name: str, value: Range) -> None:
    low, high = value
    if not 0.0 <= low <= high < float("inf"):
        raise ValueError(f"{name} must be (low, high) with 0 <= low <= high, not {value!r}")


@dataclass(frozen=True, slots=True)
class Faults:
    """How a link treats each message: probabilities, and ranges of seconds."""

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


# A host reaches itself through no cable.
LOOPBACK = Faults(delay=(0.00001, 0.0001))


@dataclass(frozen=True, slots=True)
class Cut:
    """A partition: hosts of different groups do not hear each other.

    One-way, only what the first group says to the second is lost. With a single group, it is cut
    from everybody else.
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
