"""The counts behind the metrics of DNS, which a server without `dnspython` shows, too."""

from dataclasses import dataclass, field
from typing import Final

RCODES: Final = {
    0: "NOERROR",
    1: "FORMERR",
    2: "SERVFAIL",
    3: "NXDOMAIN",
    4: "NOTIMP",
    5: "REFUSED",
    16: "BADVERS",
}
"""The response codes of answers."""


@dataclass(slots=True)
class DnsCounts:
    """Counts since the start of the server."""

    answers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RCODES.values(), 0))
    """Answers by response code."""
    truncated: int = 0
    """Answers over UDP that do not have all records: their clients ask again over TCP."""
    dropped: int = 0
    """Queries over UDP without an answer, and connections that were closed, because of limits."""
