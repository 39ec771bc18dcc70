"""The fencing token of a guard."""

import re
from typing import Final, NamedTuple, Self

MAX_PART: Final = 2**63 - 1
"""The highest revision and the highest count: revisions have 64 bits and a sign."""

_WRITTEN: Final = re.compile(r"(0|[1-9][0-9]{0,18})(?:[-.](0|[1-9][0-9]{0,18}))?")
"""Earlier versions wrote a point instead of the hyphen."""


class Token(NamedTuple):
    """A fencing token: a later owner of the lock has a higher one.

    `revision` is the create revision of the owner's key, `count` numbers the guards under that key.
    Tokens are ordered by the revision, then by the count. `int(token)` is the revision alone, which
    the guards of one ownership share. `str(token)` is the text "123-4", and `parse` reads it.

    The separator is a hyphen, as in the entry ids of Redis streams. With a point the text would be
    a valid decimal number, and as numbers 123.10 is less than 123.9. Compare tokens, not texts:
    as a text "99-1" comes after "100-1".
    """

    revision: int
    count: int  # type: ignore[assignment]  # a tuple has a method of this name, which no one needs

    def __int__(self) -> int:
        """Return the create revision."""
        return self.revision

    def __str__(self) -> str:
        """Return revision and count as a text such as "123-4", which is not a valid number."""
        return f"{self.revision}-{self.count}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a token, such as "123-4"; "123" alone has the count 0.

        The text "123.4" of earlier versions is read as well. `ValueError` for any other text.
        """
        if not isinstance(text, str):
            raise TypeError(f"a token is parsed from a str such as '123-4', got {text!r}")
        written = _WRITTEN.fullmatch(text)
        if written is not None:
            revision, count = int(written[1]), int(written[2] or 0)
            if revision <= MAX_PART and count <= MAX_PART:
                return cls(revision, count)
        raise ValueError(
            f"{text[:60]!r} is not a fencing token: expected '123-4' (revision, count) or '123', "
            f"in decimal digits without leading zeros, each part at most {MAX_PART}"
        )
