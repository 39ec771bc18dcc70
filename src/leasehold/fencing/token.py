"""`Token`: the fencing token of a guard. `Fence`: a fence for tokens in the memory of a process."""

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from leasehold.errors import StaleToken

MAX_PART: Final = 2**63 - 1
"""The highest revision and the highest count: both are signed 64-bit integers."""

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
        """Parse the text of a token, such as "123-4"; "123" alone has the count 0.

        The text "123.4" of earlier versions is accepted as well. Raises `ValueError` for any other
        text.
        """
        if not isinstance(text, str):
            raise TypeError(f"token must be a str such as '123-4', got {text!r}")
        written = _WRITTEN.fullmatch(text)
        if written is not None:
            revision, count = int(written[1]), int(written[2] or 0)
            if revision <= MAX_PART and count <= MAX_PART:
                return cls(revision, count)
        raise ValueError(
            f"{text[:60]!r} is not a fencing token: expected '123-4' (revision, count) or '123', "
            f"in decimal digits without leading zeros, each part at most {MAX_PART}"
        )


NOTHING_SEEN: Final = Token(0, 0)
"""Lower than the token of any guard: revisions and counts begin at 1."""


def check_token(given: object, name: str = "token") -> Token:
    """Return the token for a given value; an int is a revision with the count 0.

    So an int is the lowest token of its revision, and is refused once a token with a count was
    seen.
    """
    if isinstance(given, Token):
        token = given
    elif isinstance(given, int) and not isinstance(given, bool):
        token = Token(given, 0)
    else:
        advice = "; read it with Token.parse" if isinstance(given, str) else ""
        raise TypeError(f"{name} must be a Token or an int, not {given!r}{advice}")
    if not (0 <= token.revision <= MAX_PART and 0 <= token.count <= MAX_PART):
        raise ValueError(f"{name} must have parts from 0 to {MAX_PART}, not {token!r}")
    return token


class Fence:
    """Refuses tokens lower than the highest it has received. Thread-safe.

    Its state ends with its process. A durable resource must store `seen` with its data, and pass it
    in again.
    """

    def __init__(self, seen: Token | int = NOTHING_SEEN, *, name: str = "this fence") -> None:
        """Begin with the highest token seen before; `name` is the resource's name in errors."""
        self._seen = check_token(seen, "seen")
        self._name = name
        self._lock = threading.RLock()
        self._is_inside = False

    @property
    def seen(self) -> Token:
        """The highest token that was admitted."""
        return self._seen

    def admit(self, token: Token | int) -> None:
        """Admit a token that is not lower than any before; raise `StaleToken` otherwise.

        This is valid for this moment only: write in a block of `admitted`, unless other writers are
        kept out until the write is done. `admit` alone shuts out earlier holders, which must be
        done before reading data that a later write is based on.
        """
        with self.admitted(token):
            pass

    @contextlib.contextmanager
    def admitted(self, token: Token | int) -> Iterator[None]:
        """Admit a token, and admit no other until the block is done.

        Threads wait for each other here, so the block should be short, and await nothing. A token
        counts as seen also if the block fails.
        """
        shown = check_token(token)
        with self._lock:
            if self._is_inside:
                raise RuntimeError(
                    f"{self._name} is already in a block of `admitted` in this thread: leave that "
                    "block before admitting another token"
                )
            if shown < self._seen:
                raise StaleToken(shown, self._seen, self._name)
            self._seen = shown
            self._is_inside = True
            try:
                yield
            finally:
                self._is_inside = False

    def __repr__(self) -> str:
        return f"<Fence {self._name!r}, seen {self._seen}>"
