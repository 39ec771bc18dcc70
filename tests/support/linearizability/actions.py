"""What clients ask of a key, and the answers to it.

An action says what it does to a key's state, with its answer or without one. What an answer leaves
out (None) is not checked. `revision` is always that of the header, and must be the store's right
after the operation, as etcd has it for all calls on keys.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from tests.support.linearizability.models import KeyState, Span


class Result(Protocol):
    """An answer."""

    @property
    def revision(self) -> int | None:
        """The revision in its header, if it was told."""


@dataclass(frozen=True, slots=True)
class Header:
    """An answer that tells no more than the store's revision."""

    revision: int | None

    def __str__(self) -> str:
        return f"revision {self.revision}"


@dataclass(frozen=True, slots=True)
class Written:
    """A value was put, at this revision."""

    revision: int | None = None

    def __str__(self) -> str:
        return "written" if self.revision is None else f"written at {self.revision}"


@dataclass(frozen=True, slots=True)
class Deleted:
    """So many keys were deleted, 0 or 1."""

    count: int
    revision: int | None = None

    def __post_init__(self) -> None:
        if self.count not in {0, 1}:
            raise ValueError(f"count is {self.count}; of one key, 0 or 1 can be deleted")

    def __str__(self) -> str:
        deleted = f"{self.count} deleted"
        return deleted if self.revision is None else f"{deleted} at {self.revision}"


@dataclass(frozen=True, slots=True)
class Read:
    """What was there: a value, or None for an absent key."""

    value: bytes | None
    mod_revision: int | None = None
    version: int | None = None
    create_revision: int | None = None
    revision: int | None = None

    def __str__(self) -> str:
        what = "absent" if self.value is None else repr(self.value)
        told = {
            "mod": self.mod_revision,
            "version": self.version,
            "create": self.create_revision,
            "at": self.revision,
        }
        facts = [f"{name} {number}" for name, number in told.items() if number is not None]
        return f"{what} ({', '.join(facts)})" if facts else what

    def agrees(self, state: KeyState) -> KeyState | None:
        """Return the state with what this tells about it; None if it was not read there."""
        if self.value != state.value or self.version not in {None, state.version}:
            return None
        return state.told(store=self.revision, mod=self.mod_revision, create=self.create_revision)


class Fits(IntEnum):
    """How often a write without an answer can have its effect."""

    NEVER_AGAIN = 0
    """Not at a later time than the one at which it fits now."""
    SOMETIMES = 1
    ALWAYS = 2


R = TypeVar("R", bound=Result)


class Action(ABC, Generic[R]):
    """What a client asks for; `R` is how it is answered."""

    @abstractmethod
    def after(self, state: KeyState, result: R | None, at: Span) -> KeyState | None:
        """Return the state after it, or None if this cannot have been.

        Without a result it took effect, and its caller got no response. If it wrote, then `at` one
        of these revisions.
        """

    def is_write(self, _result: R | None) -> bool:
        """Return whether it takes a revision; if it was not answered, whether it may."""
        return False

    def tells_apart(self, _result: R | None) -> Iterable[bytes]:
        """Name the values for which it matters whether they are there."""
        return ()

    def writes(self) -> bytes | None:
        """Name the value that it writes, if any."""
        return None

    def writing(self, _value: bytes) -> "Action[R]":
        """Return the same with another value to write."""
        return self

    def fits(self, _put_once: AbstractSet[bytes]) -> Fits:
        """Say how often it can have its effect, knowing which values come only once."""
        return Fits.ALWAYS


@dataclass(frozen=True, slots=True)
class Ask(Action[Header]):
    """Anything that concerns no key, for the revision in its header."""

    what: str

    def __str__(self) -> str:
        return self.what

    def after(self, state: KeyState, _result: Header | None, _at: Span) -> KeyState:
        return state


@dataclass(frozen=True, slots=True)
class Put(Action[Written]):
    """Put a value."""

    value: bytes

    def __str__(self) -> str:
        return f"put {self.value!r}"

    def after(self, state: KeyState, _result: Written | None, at: Span) -> KeyState | None:
        return state.written(self.value, at)

    def is_write(self, _result: Written | None) -> bool:
        return True

    def writes(self) -> bytes:
        return self.value

    def writing(self, value: bytes) -> "Put":
        return Put(value)


@dataclass(frozen=True, slots=True)
class Get(Action[Read]):
    """Read the key."""

    def __str__(self) -> str:
        return "get"

    def after(self, state: KeyState, result: Read | None, _at: Span) -> KeyState | None:
        return state if result is None else result.agrees(state)

    def tells_apart(self, result: Read | None) -> Iterable[bytes]:
        return _value_of(result)


@dataclass(frozen=True, slots=True)
class Delete(Action[Deleted]):
    """Delete the key."""

    def __str__(self) -> str:
        return "delete"

    def after(self, state: KeyState, result: Deleted | None, at: Span) -> KeyState | None:
        if result is None or result.count:
            return state.deleted(at)
        return state.told(store=result.revision) if state.version == 0 else None

    def is_write(self, result: Deleted | None) -> bool:
        return result is None or result.count > 0


@dataclass(frozen=True, slots=True)
class ModIs:
    """Holds if the key was last written at this revision; 0: if it is absent."""

    revision: int

    def held(self, state: KeyState) -> KeyState | None:
        """Return the state with what it tells that this holds, or None if it does not."""
        return state.told(mod=self.revision)

    def must_hold(self, state: KeyState) -> bool:
        """Return whether it holds, whatever is unknown about the state."""
        return state.mod == (self.revision, self.revision)


@dataclass(frozen=True, slots=True)
class VersionIs:
    """Holds if the key was written so many times since it was created; 0: if it is absent."""

    version: int

    def held(self, state: KeyState) -> KeyState | None:
        """Return the state if this holds."""
        return state if self.must_hold(state) else None

    def must_hold(self, state: KeyState) -> bool:
        """Return whether it holds."""
        return state.version == self.version


@dataclass(frozen=True, slots=True)
class ValueIs:
    """Holds if the key is present with this value."""

    value: bytes

    def held(self, state: KeyState) -> KeyState | None:
        """Return the state if this holds."""
        return state if self.must_hold(state) else None

    def must_hold(self, state: KeyState) -> bool:
        """Return whether it holds."""
        return state.value == self.value


Compare = ModIs | VersionIs | ValueIs


@dataclass(frozen=True, slots=True)
class Cas(Action[Written | Read]):
    """A transaction: put the value if the compare holds, else read the key.

    Answered with `Written` if it succeeded, and with what was `Read` if it did not. While the
    key's revision is unknown, a `ModIs` that failed rules nothing out unless the read tells it.
    """

    compare: Compare
    value: bytes

    def __str__(self) -> str:
        return f"if {self.compare} put {self.value!r} else get"

    def after(self, state: KeyState, result: Written | Read | None, at: Span) -> KeyState | None:
        if isinstance(result, Read):
            read = result.agrees(state)
            return None if read is None or self.compare.must_hold(read) else read
        held = self.compare.held(state)
        return None if held is None else held.written(self.value, at)

    def is_write(self, result: Written | Read | None) -> bool:
        return not isinstance(result, Read)

    def tells_apart(self, result: Written | Read | None) -> Iterable[bytes]:
        compared = (self.compare.value,) if isinstance(self.compare, ValueIs) else ()
        return (*compared, *(_value_of(result) if isinstance(result, Read) else ()))

    def writes(self) -> bytes:
        return self.value

    def writing(self, value: bytes) -> "Cas":
        return Cas(self.compare, value)

    def fits(self, put_once: AbstractSet[bytes]) -> Fits:
        match self.compare:
            case ModIs():
                return Fits.NEVER_AGAIN
            case ValueIs(value) if value in put_once:
                return Fits.NEVER_AGAIN
            case _:
                return Fits.SOMETIMES


def _value_of(read: Read | None) -> Iterable[bytes]:
    return () if read is None or read.value is None else (read.value,)
