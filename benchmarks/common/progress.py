"""Saying how far a benchmark is, with the time since it began."""

import sys
from time import monotonic

_started = monotonic()


def tell(what: str) -> None:
    """Report progress on standard error."""
    print(f"[{monotonic() - _started:5.0f} s] {what}", file=sys.stderr, flush=True)
