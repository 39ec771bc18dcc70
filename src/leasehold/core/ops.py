"""The operations that change a store. Each says with its type what `Store.apply` returns for it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from leasehold.core.keyspace import Item

R = TypeVar("R")


class Op(Generic[R]):
    """An operation whose result is an `R`."""

    __slots__ = ()


@dataclass(slots=True)
class Put(Op[tuple[int, Item | None]]):
    """Set a key. The result is the revision, and what the key was before.

    A value or lease of None keeps what the key has, which must be there for it.
    """

    key: bytes
    value: bytes | None
    lease: int | None = 0


@dataclass(slots=True)
class Grant(Op[tuple[int, bytes]]):
    """Begin a lease. The result is its id: the one given, or for 0 one that the store chose.

    It comes plain and as the bytes that messages have for it, which the store needs anyway.
    """

    lease: int
    ttl_s: float


@dataclass(slots=True)
class Revoke(Op[int]):
    """End a lease, and delete its keys at one revision, which is the result."""

    lease: int
