"""Watch responses in parts, for clients that ask for it: no message is larger than they take."""

from collections.abc import Iterator, Sequence
from typing import Final

FRAGMENT_BYTES: Final = 2 * 1024 * 1024
"""A response that would be as large as this is sent in parts: etcd's limit on requests."""

TO_BE_CONTINUED: Final = b"\x38\x01"
"""The field that all parts have but the last."""


def fragments(events: Sequence[bytes], beside_bytes: int) -> Iterator[bytes]:
    """Cut the events of a response into parts, each with at least one event and as many as fit.

    `beside_bytes` is what else is in each part.
    """
    size = beside_bytes + sum(map(len, events))
    if size < FRAGMENT_BYTES or len(events) == 1:
        yield b"".join(events)
        return
    beside_bytes += len(TO_BE_CONTINUED)
    first, size = 0, beside_bytes
    for number, event in enumerate(events):
        size += len(event)
        if size >= FRAGMENT_BYTES and number > first:
            yield TO_BE_CONTINUED + b"".join(events[first:number])
            first, size = number, beside_bytes + len(event)
    yield b"".join(events[first:])
