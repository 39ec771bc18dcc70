"""The fencing token of a guard."""

import re
from typing import Final, NamedTuple, Self

MAX_PART: Final = 2**63 - 1
"""The highest revision and the highest count: revisions have 64 bits and a sign."""

_WRITTEN: Final = re.compile(r"(0|[1-9][0-9]{0,18})(?:\.(0|[1-9][0-9]{0,18}))?")


class Token(NamedTuple):
    """A fencing token: who has the lock later has the higher one.

    `revision` is the create revision of the owner's key, `count` numbers the guards under that key.
    Tokens are ordered by the revision, then by the count. `int(token)` is the revision alone, which
    the guards of one ownership share; `str(token)` is such as "123.4", and `parse` reads it.
    """

    revision: int
    count: int  # type: ignore[assignment]  # a tuple has a method of this name, which no one needs

    def __int__(self) -> int:
        """Give the create revision."""
        return self.revision

    def __str__(self) -> str:
        """Write it such as "123.4"."""
        return f"{self.revision}.{self.count}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a token as `str` writes it, such as "123.4"; "123" alone has the count 0."""
        if not isinstance(text, str):
            raise TypeError(f"a token is read from a str such as '123.4', not from {text!r}")
        written = _WRITTEN.fullmatch(text)
        if written is not None:
            revision, count = int(written[1]), int(written[2] or 0)
            if revision <= MAX_PART and count <= MAX_PART:
                return cls(revision, count)
        raise ValueError(
            f"{text[:60]!r} is no fencing token: one is written as '123.4' (revision, count) or "
            f"'123', in decimal digits without leading zeros, each part at most {MAX_PART}"
        )
