"""Long results without as many objects: each is made when somebody looks at it.

A million objects that live for a while are what the garbage collector would look through again and
again, and everybody would wait for that. Plain tuples of bytes and numbers it leaves alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Lazily(Sequence[T], Generic[T]):
    """A sequence of what `make` makes of each of some plain values."""

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[Any], T], values: Sequence[Any]) -> None:
        self._make = make
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> "Lazily[T]": ...

    def __getitem__(self, place: int | slice) -> "T | Lazily[T]":
        if isinstance(place, slice):
            return Lazily(self._make, self._values[place])
        return self._make(self._values[place])

    def __iter__(self) -> Iterator[T]:
        return map(self._make, self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as for lists

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"[{shown}{', ...' if len(self) > 3 else ''}]"
