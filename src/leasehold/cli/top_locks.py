"""Locks among keys, by their layout, and for how long their holders were seen to have them.

Whoever contends for a lock has a key `<name>/<lease in hexadecimal>` under that lease; the one that
was created first holds it. `etcdctl lock` and `etcdctl elect`, Go's `concurrency` and our own
clients all do it like that. Other keys that happen to look the same are shown as well: nobody can
tell them apart.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leasehold.recipes.naming import MAX_WHO, SESSIONS, Claim, hex_of, text_of


class Contender(NamedTuple):
    """A key as far as it matters here: its value is not read for everyone."""

    key: bytes
    create_revision: int
    mod_revision: int
    lease: int


class Lock(NamedTuple):
    """A lock, who has it, and how many wait for it."""

    name: bytes
    holder: Contender
    waiting: int


class Tenure(NamedTuple):
    """For how long a holder was seen to have a lock."""

    seconds: float
    is_whole: bool
    """Whether the beginning was seen, too; else it may be longer."""


def lock_of(contender: Contender) -> bytes | None:
    """Give the name of the lock that a key contends for; None if it does not."""
    if not contender.lease or contender.key.startswith(SESSIONS):
        return None
    name, slash, last = contender.key.rpartition(b"/")
    return name if slash and name and last == hex_of(contender.lease) else None


def find_locks(contenders: Iterable[Contender]) -> list[Lock]:
    """Find locks: those first that most wait for, and then by name."""
    lines: dict[bytes, list[Contender]] = {}
    for contender in contenders:
        name = lock_of(contender)
        if name is not None:
            lines.setdefault(name, []).append(contender)
    locks = [
        Lock(name, min(those, key=lambda each: each.create_revision), len(those) - 1)
        for name, those in lines.items()
    ]
    return sorted(locks, key=lambda lock: (-lock.waiting, lock.name))


def who_of(value: bytes, *, is_session: bool = False) -> str:
    """Read who has a key of ours; empty if it is somebody else's, who says nothing of that."""
    claim = Claim.decode(value)
    if claim is not None:
        return claim.who
    return text_of(value[:MAX_WHO]) if is_session else ""


class Tenures:
    """Remembers since when each holder was seen, for as long as it holds."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[int, float, bool]] = {}
        self._has_looked = False

    def look(self, locks: Sequence[Lock], now_s: float) -> list[Tenure]:
        """Learn who holds what now; give the tenure of each."""
        before, self._seen = self._seen, {}
        tenures = []
        for lock in locks:
            revision = lock.holder.create_revision
            known = before.get(lock.name)
            if known is None or known[0] != revision:
                known = (revision, now_s, self._has_looked)
            self._seen[lock.name] = known
            tenures.append(Tenure(now_s - known[1], known[2]))
        self._has_looked = True
        return tenures
