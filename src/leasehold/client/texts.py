"""Keys and values as users have them: bytes, or text in UTF-8."""

from typing import TypeAlias

Octets: TypeAlias = bytes | str


def octets_of(given: Octets, name: str) -> bytes:
    """Give the bytes of a key or a value."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise TypeError(f"{name} must be bytes or str, not {type(given).__name__}")
