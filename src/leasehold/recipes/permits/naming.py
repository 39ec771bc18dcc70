"""The keys of permits: `leasehold/permits/<subject>/<resource>`, both escaped as in addresses.

A slash, a percent sign, and whatever is no letter, digit or one of `_.-~` in ASCII is written as
`%2F`, byte by byte of its UTF-8. So a name has no slash of its own, and none reaches into another.
"""

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from leasehold.engine.interface import prefix_end

PREFIX: Final = b"leasehold/permits/"
END: Final = prefix_end(PREFIX)

CALLS: Final = b"leasehold/permit-calls/"
"""Keys that are there while a call is under way, which must not take effect after it was given up.
"""

MAX_NAME_BYTES: Final = 4_096
"""Limit on the UTF-8 form of a subject, a resource, a right or `granted_by`, as for lock names. In
a key the escaped name is up to three times as long, and still fits into a request."""


class Names(NamedTuple):
    """Who has a permit, and for what."""

    subject: str
    resource: str

    @property
    def key(self) -> bytes:
        """The key of the permit."""
        return prefix_of(self.subject) + _escaped(self.resource)


def names_of(subject: str, resource: str) -> Names:
    """Check the names that a caller gives."""
    check_name(subject, "subject")
    check_name(resource, "resource")
    return Names(subject, resource)


def prefix_of(subject: str) -> bytes:
    """Give what the keys of all permits of a subject begin with, and no others do."""
    return PREFIX + _escaped(subject) + b"/"


def _escaped(name: str) -> bytes:
    return quote(name, safe="").encode()


def check_name(name: str, what: str) -> str:
    """Return a name that can be used in a permit.

    `TypeError` unless it is a str; `ValueError` if it is empty, too long, or cannot be encoded.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {name!r}")
    if not name:
        raise ValueError(f"{what} must not be empty: give it a name, such as 'anna'")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that UTF-8 can say, not {name!r}") from None
    if size > MAX_NAME_BYTES:
        raise ValueError(f"{what} must have {MAX_NAME_BYTES} bytes at most, not {size}")
    return name


def read_names(key: bytes) -> Names | None:
    """Read the names from a key; None if it is not one that is written here."""
    try:
        parts = key.removeprefix(PREFIX).decode("ascii").split("/")
        subject, resource = (unquote(each, errors="strict") for each in parts)
    except ValueError:  # other letters, or another number of parts
        return None
    names = Names(subject, resource)
    return names if subject and resource and names.key == key else None
