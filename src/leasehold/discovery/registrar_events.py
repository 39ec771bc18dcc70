"""Events of the discovery service, as their listeners receive them.

Each registrar is encoded for itself. One that cannot be decoded here, such as one of a later
version, can be left out, and is tried again at each call.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, EncodeError

from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery_messages import KIND, found_message, registrar_in
from leasehold.errors import LookupUnmarshalError
from leasehold.events.state import RemoteEvent
from leasehold.wire import discovery_pb2 as pb

S = TypeVar("S")

Decode = Callable[[bytes], Registrar]


def decode_registrar(marshalled: bytes) -> Registrar:
    """Return a registrar from its bytes. Raises ValueError."""
    try:
        registrar = registrar_in(marshalled)
    except DecodeError as error:
        raise ValueError(f"registrar cannot be decoded: {error}") from None
    if not registrar.id:
        raise ValueError("registrar cannot be decoded: it has no id")
    return registrar


class MarshalledRegistrars:
    """Registrars that are decoded when they are needed."""

    def __init__(
        self, found: Iterable[pb.FoundRegistrar], decode: Decode = decode_registrar
    ) -> None:
        self._found = {each.id: each for each in found}
        self._decode = decode
        self._decoded: dict[str, Registrar] = {}

    @property
    def groups(self) -> dict[str, frozenset[str]]:
        """The groups of each registrar, by its id; also of those that cannot be decoded."""
        return {each.id: frozenset(each.groups) for each in self._found.values()}

    def registrars(self) -> list[Registrar]:
        """Return all registrars; decodes those that could not be decoded before.

        Raises `LookupUnmarshalError`, which has the others, if some still cannot be.
        """
        marshalled, exceptions = [], []
        for registrar, message in self._found.items():
            if registrar in self._decoded:
                continue
            try:
                decoded = self._decode(message.registrar)
            except Exception as error:  # noqa: BLE001  reported below
                marshalled.append(message.registrar)
                exceptions.append(error)
            else:
                self._decoded[registrar] = replace(decoded, groups=frozenset(message.groups))
        registrars = [self._decoded[each] for each in self._found if each in self._decoded]
        if marshalled:
            raise LookupUnmarshalError(registrars, marshalled, exceptions)
        return registrars


class RegistrarEvent(Generic[S]):
    """Registrars were discovered, or discarded, for a registration of the discovery service."""

    __slots__ = ("_registrars", "groups", "handback", "is_discarded", "kind", "number", "source")

    def __init__(
        self,
        source: S,
        number: int,
        handback: bytes,
        registrars: Sequence[Registrar],
        *,
        is_discarded: bool = False,
    ) -> None:
        """Make an event, such as in a test.

        TypeError: `registrars` is None, or one of them is not a registrar. ValueError: there are
        none, or none of them can be encoded; others that cannot be encoded are left out.
        """
        several: Any = registrars
        if not isinstance(several, Iterable):
            raise TypeError(f"registrars must be a collection of Registrar, not {registrars!r}")
        given = list(several)
        for each in given:
            if not isinstance(each, Registrar):
                raise TypeError(f"registrars must contain only Registrar, not {each!r}")
        if not given:
            raise ValueError("an event must have at least one registrar")
        self._init(source, number, handback, _encoded(given), is_discarded=is_discarded)

    def _init(
        self,
        source: S,
        number: int,
        handback: bytes,
        found: Iterable[pb.FoundRegistrar],
        *,
        is_discarded: bool,
    ) -> None:
        self.source = source
        """The registration: equal to any other handle of it."""
        self.kind = KIND
        """The same for all events of the service."""
        self.number = number
        """Rises with each event of the registration; after a gap, call `registrars` of that."""
        self.handback = handback
        """From the registration, unchanged."""
        self.is_discarded = is_discarded
        """Whether the registrars were discarded; else they were discovered."""
        self._registrars = MarshalledRegistrars(found)
        self.groups: Mapping[str, frozenset[str]] = self._registrars.groups
        """The groups of each registrar, by its id."""

    @classmethod
    def of(cls, source: S, event: RemoteEvent) -> "RegistrarEvent[S]":
        """Return the event that was received. ValueError: it is another event."""
        try:
            payload = pb.RegistrarsPayload.FromString(event.payload)
        except DecodeError as error:
            raise ValueError(f"event {event.number} cannot be decoded: {error}") from None
        made: RegistrarEvent[Any] = cls.__new__(cls)
        made._init(
            source,
            event.number,
            event.handback,
            payload.registrars,
            is_discarded=payload.discarded,
        )
        return made

    def registrars(self) -> list[Registrar]:
        """Return the registrars, each once, as a new list.

        Raises `LookupUnmarshalError`, which has the others, if some cannot be decoded here. They
        are tried again at the next call.
        """
        return self._registrars.registrars()

    def __repr__(self) -> str:
        what = "discarded" if self.is_discarded else "discovered"
        ids = ", ".join(self.groups)
        return f"<RegistrarEvent {self.number} of {self.source!r}: {what} {ids}>"


def _encoded(registrars: Iterable[Registrar]) -> list[pb.FoundRegistrar]:
    found: list[pb.FoundRegistrar] = []
    last: Exception | None = None
    for registrar in registrars:
        try:
            found.append(found_message(registrar))
        except (TypeError, ValueError, EncodeError) as error:
            last = error
    if not found:
        raise ValueError(f"none of the registrars can be encoded: {last}") from last
    return found
