"""Keys and values as users have them: bytes, or text in UTF-8."""

from typing import TypeAlias

from leasehold.engine.interface import prefix_end

Octets: TypeAlias = bytes | str


def octets_of(given: Octets, name: str) -> bytes:
    """Give the bytes of a key or a value."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise TypeError(f"{name} must be bytes or str, not {type(given).__name__}")


def range_of(key: Octets, end: Octets, *, prefix: bool) -> tuple[bytes, bytes]:
    """Give the first key of a range and its end; an empty prefix has all keys."""
    first, last = octets_of(key, "key"), octets_of(end, "end")
    if not prefix:
        return first, last
    if last:
        raise ValueError("end and prefix exclude each other: give one of them")
    return (first, prefix_end(first)) if first else (b"\0", b"\0")
