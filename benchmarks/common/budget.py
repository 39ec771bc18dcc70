"""Time: how much a run may take, and how many rounds fit into it."""

from collections.abc import Iterator
from time import monotonic


def rounds_within(rounds: int, most_s: float) -> Iterator[int]:
    """Count rounds from 0. After the first, none is begun that would likely end after `most_s`."""
    started, longest_s = monotonic(), 0.0
    for number in range(rounds):
        begun = monotonic()
        if number and begun - started + longest_s > most_s:
            return
        yield number
        longest_s = max(longest_s, monotonic() - begun)
