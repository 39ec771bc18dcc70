"""What happened in a run: the last lines for people, and a hash over everything for replay."""

import hashlib
from collections import deque

TRACE_LINES = 1_000  # kept for reading; the digest covers all of them


class Trace:
    """Collects lines. Nothing that differs between processes (addresses, hashes) may enter."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TRACE_LINES)
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)

    def add(self, now: float, host: str | None, what: str) -> None:
        """Write a line, and count it in the digest."""
        line = f"{now:.6f} {host or '-'} {what}"
        self._lines.append(line)
        self._hash.update(f"{now!r} {line}\n".encode())

    def count_turn(self, now: float, host: str, callbacks: int) -> None:
        """Count a turn in the digest only: as lines, turns would push out all others."""
        self._hash.update(f"{now!r} {host} {callbacks}\n".encode())

    def digest(self) -> str:
        """Hash over all that was added so far."""
        return self._hash.hexdigest()
