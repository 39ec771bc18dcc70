"""How much of everything."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of keys, watches and leases, rounds, and time."""

    sizes: tuple[int, ...]
    """Numbers of keys at which calls are counted."""
    watches: tuple[int, ...]
    expiring: tuple[int, ...]
    """Numbers of leases that end together."""
    keys: int
    leases: int
    """What an engine starts with, and what is read and listed in one call."""
    many: int
    """Keys that are deleted together: by one delete, or with one lease."""
    revisions: int
    """The number of revisions of one compaction."""
    weighed: int
    """Keys and leases whose bytes are counted."""
    rounds: int
    few: int
    """Rounds of what takes long."""
    seconds: float
    """For one sample of calls."""
    calls_s: float
    watches_s: float
    expiry_s: float
    memory_s: float
    start_s: float
    long_s: float
    compaction_s: float
    """For all rounds of each part. A first round is always made; loading comes on top."""
    limit_s: float
    """For one measuring process, or one answer of it."""
    most_s: float
    """What the collector spoiled is measured again, tuned, if that likely ends before this."""

    def at_most(self, most: int) -> "Scale":
        """The same with no number larger than this."""
        return replace(
            self,
            sizes=_cut(self.sizes, most),
            watches=_cut(self.watches, most),
            expiring=_cut(self.expiring, most),
            keys=min(self.keys, most),
            leases=min(self.leases, most),
            many=min(self.many, most),
            revisions=min(self.revisions, most),
            weighed=min(self.weighed, most),
        )


def _cut(numbers: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(number, most) for number in numbers))


FULL = Scale(
    sizes=(1_000, 10_000, 100_000, 1_000_000),
    watches=(10, 100, 1_000, 10_000),
    expiring=(1, 10_000, 100_000),
    keys=1_000_000,
    leases=200_000,
    many=100_000,
    revisions=1_000_000,
    weighed=50_000,
    rounds=5,
    few=3,
    seconds=0.25,
    calls_s=140.0,
    watches_s=25.0,
    expiry_s=45.0,
    memory_s=45.0,
    start_s=50.0,
    long_s=40.0,
    compaction_s=40.0,
    limit_s=240.0,
    most_s=720.0,
)

QUICK = Scale(
    sizes=(100, 1_000),
    watches=(10, 100),
    expiring=(1, 300),
    keys=3_000,
    leases=1_000,
    many=2_000,
    revisions=2_000,
    weighed=1_000,
    rounds=2,
    few=1,
    seconds=0.05,
    calls_s=6.0,
    watches_s=2.0,
    expiry_s=2.0,
    memory_s=1.0,
    start_s=1.0,
    long_s=1.0,
    compaction_s=1.0,
    limit_s=60.0,
    most_s=45.0,
)
