"""One service of all four kinds, which is written twice: on our server, and on grpcio's.

Here is what both agree on: the paths, what requests look like, and `Notes`, where handlers write
down what has happened to them. A call that wants to be written down says its name in the metadata.
"""

import json
import threading
from dataclasses import asdict, dataclass
from enum import Enum
from operator import itemgetter
from typing import Final

DEADLINE_S: Final = 60.0
"""For whatever is to happen; nothing that goes well takes nearly as long."""

SERVICE: Final = "demo.Demo"
NAME: Final = "x-name"
"""The metadata key under which a call says its name."""

Pairs = tuple[tuple[str, str | bytes], ...]


class Kind(Enum):
    """gRPC's kinds of calls."""

    ONE_TO_ONE = "OneToOne"
    ONE_TO_MANY = "OneToMany"
    MANY_TO_ONE = "ManyToOne"
    MANY_TO_MANY = "ManyToMany"

    @property
    def asks_many(self) -> bool:
        """Whether the client says any number of messages."""
        return self in (Kind.MANY_TO_ONE, Kind.MANY_TO_MANY)

    @property
    def answers_many(self) -> bool:
        """Whether the server does."""
        return self in (Kind.ONE_TO_MANY, Kind.MANY_TO_MANY)


def path(method: str, kind: Kind | None = None) -> str:
    """The path of a method; of those that exist in each kind, that of one kind."""
    return f"/{SERVICE}/{method}{kind.value if kind else ''}"


ECHO: Final = path("Echo")  # gives the message back
LATER: Final = path("Later")  # the same, with a coroutine where there are such
COUNT: Final = path("Count")  # "n size": n messages of at least this size, numbered
SUM: Final = path("Sum")  # the sum of numbers
CHAT: Final = path("Chat")  # gives each message back as it comes
GREET: Final = path("Greet")  # gives the metadata back at once, and then chats
DUPLEX: Final = path("Duplex")  # counts as COUNT does, hearing meanwhile; then how much
BIG: Final = path("Big")  # "n": n bytes
TIMEOUT: Final = path("Timeout")  # how many seconds the call may take; "none"
METADATA: Final = path("Metadata")  # gives the metadata back, twice
PACKED: Final = path("Packed")  # a long answer, compressed if the client has agreed
HOLD: Final = path("Hold")  # says "held" to its name, which is the message, until it is "released"
HOLD_LATER: Final = path("HoldLater")  # the same, with a coroutine where there are such
SLEEP: Final = "Sleep"  # in each kind: hears the first message, and never answers
FAIL: Final = "Fail"  # in each kind: fails as it is told to
QUIT: Final = "Quit"  # of kinds that ask many: answers the first message, and has enough

PACKED_ANSWER: Final = b"all work and no play " * 5_000


def counted(index: int, size: int) -> bytes:
    """The message of this number that COUNT says."""
    return (b"%d " % index).ljust(size, b".")


@dataclass(frozen=True)
class Failing:
    """How a call is to fail: with what, and after how many messages."""

    status: int
    message: str
    after: int = 0

    def encoded(self) -> bytes:
        """Write it into a request."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, request: bytes) -> "Failing":
        """Read it out of a request."""
        return cls(**json.loads(request))


def told(pairs: Pairs) -> Pairs:
    """What of the metadata was said by tests, and not by a library.

    Only values of the same key have an order; grpc.aio, for one, brings them together.
    """
    return tuple(sorted((pair for pair in pairs if pair[0].startswith("x-")), key=itemgetter(0)))


class Notes:
    """What has happened to handlers: each thing may be waited for, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._happened: dict[str, threading.Event] = {}

    def _event(self, what: str) -> threading.Event:
        with self._lock:
            return self._happened.setdefault(what, threading.Event())

    def write(self, what: str, pairs: Pairs) -> None:
        """Write down that this has happened to the call with this metadata."""
        name = dict(pairs).get(NAME, "")
        assert isinstance(name, str)
        self.say(what, name)

    def say(self, what: str, name: str) -> None:
        """Write down that this has happened to the call of this name."""
        self._event(f"{what} {name}").set()

    def wait(self, what: str, name: str) -> None:
        """Wait until this has happened to the call of this name."""
        assert self._event(f"{what} {name}").wait(DEADLINE_S), f"{name} was never {what}"

    def has(self, what: str, name: str) -> bool:
        """Tell whether it has happened."""
        return self._event(f"{what} {name}").is_set()
