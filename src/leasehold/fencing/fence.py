"""A fence in memory, and the tokens that all fences take."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from leasehold.errors import StaleToken
from leasehold.recipes.token import MAX_PART, Token

NOTHING_SEEN: Final = Token(0, 0)
"""Lower than the token of any guard: revisions and counts begin at 1."""


def check_token(given: object, name: str = "token") -> Token:
    """Give the token that is meant; an int is a revision with the count 0.

    So an int is the lowest token of its revision, and is refused where a count was seen with it.
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
    """Refuses tokens that are lower than the highest it was shown. It may be used by all threads.

    It forgets with its process. A resource that does not must keep `seen` with its data, and hand
    it in again.
    """

    def __init__(self, seen: Token | int = NOTHING_SEEN, *, name: str = "this fence") -> None:
        """Begin with what was seen before; `name` is what errors call the resource."""
        self._seen = check_token(seen, "seen")
        self._name = name
        self._lock = threading.RLock()
        self._is_inside = False

    @property
    def seen(self) -> Token:
        """The highest token that was admitted."""
        return self._seen

    def admit(self, token: Token | int) -> None:
        """Let pass what is as high as all before, or higher; `StaleToken` for the others.

        That is about this moment only: write in a block of `admitted`, unless something else keeps
        other writers out until the write is done. By itself it shuts out the holders of before,
        which has to be done before reading what a later write will be based on.
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
                    f"{self._name} is in a block of `admitted` of this very thread: no token can "
                    "be admitted before that is done"
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
