"""The events of a renewal set, as its listeners receive them.

The lease and the error of an event are decoded when they are first used. They may belong to a later
version, or to a grantor that this process cannot reach: then only they cannot be used, and the rest
of the event can.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from leasehold import errors
from leasehold.errors import EndReason, LeaseholdError, RemoteError, UnknownLease, fresh
from leasehold.renewal.references import LeaseReference
from leasehold.wire import renewal_pb2 as pb

S = TypeVar("S")
L = TypeVar("L")
T = TypeVar("T")


class _Numbered(Protocol):
    """The attributes that an event of a set has in common with a `RemoteEvent`."""

    @property
    def kind(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def handback(self) -> bytes: ...


class _Once(Generic[T]):
    """A value that is decoded on first use, and then always the same; so is a failure."""

    __slots__ = ("_decode", "_failure", "_value")

    def __init__(self, decode: Callable[[], T]) -> None:
        self._decode: Callable[[], T] | None = decode
        self._value: T
        self._failure: Exception | None = None

    def get(self) -> T:
        """Return the value; raise if it cannot be decoded."""
        decode, self._decode = self._decode, None
        if decode is not None:
            try:
                self._value = decode()
            except Exception as error:  # noqa: BLE001  raised below
                self._failure = error
        if self._failure is not None:
            raise fresh(self._failure)
        return self._value


class SetEventBase(Generic[S, L]):
    """An event of a renewal set."""

    __slots__ = ("_lease", "handback", "kind", "number", "source")

    def __init__(self, source: S, event: "_Numbered", lease: Callable[[], L]) -> None:
        self.source = source
        """The set: equal to any other handle of it."""
        self.kind = event.kind
        """The same for all sets."""
        self.number = event.number
        """Rises by one with each event of this set and kind; a gap shows dropped events."""
        self.handback = event.handback
        """From the registration, unchanged."""
        self._lease = _Once(lease)

    @property
    def lease(self) -> L:
        """The lease that the event is about. Raises ValueError if it cannot be decoded here."""
        return self._lease.get()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} of {self.source!r}>"


class ExpirationWarning(SetEventBase[S, L]):
    """The lease of a set ends soon. `lease` is the lease of the set, ready to be renewed."""

    __slots__ = ()


class RenewalFailure(SetEventBase[S, L]):
    """A lease could not be kept alive, and has left the set; `lease` has its last recorded end."""

    __slots__ = ("_error",)

    def __init__(
        self,
        source: S,
        event: "_Numbered",
        lease: Callable[[], L],
        error: Callable[[], Exception | None],
    ) -> None:
        super().__init__(source, event, lease)
        self._error = _Once(error)

    @property
    def error(self) -> Exception | None:
        """The error of the last renewal since the last success, or None if there was none.

        It is of the class of that name in `leasehold.errors`, or else a `RemoteError`.
        """
        return self._error.get()


def error_of(payload: pb.FailurePayload) -> Exception | None:
    """Return the error of a failure."""
    if not payload.HasField("error"):
        return None
    name, status, message = (
        payload.error.class_name,
        payload.error.status,
        payload.error.message,
    )
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, LeaseholdError):
        return RemoteError(name, status, message)
    if kind is UnknownLease:
        return _unknown_lease(payload, message)
    if kind.__init__ is LeaseholdError.__init__:
        return kind(message)
    return _with_text(kind, message)


def _unknown_lease(payload: pb.FailurePayload, message: str) -> LeaseholdError:
    try:
        cookie: object = LeaseReference.decode(payload.reference).cookie
    except ValueError:
        cookie = payload.reference
    found = (UnknownLease(cookie, reason) for reason in EndReason)
    return next((each for each in found if str(each) == message), UnknownLease(cookie))


def _with_text(kind: type[LeaseholdError], message: str) -> LeaseholdError:
    """Return an error of a class whose arguments are not known: it has only its text."""
    plain: type[LeaseholdError] = type(kind.__name__, (kind,), {"__str__": lambda _: message})
    return plain.__new__(plain, message)
