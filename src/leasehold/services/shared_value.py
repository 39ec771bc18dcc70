"""`SharedValue`: a value in one plain key, which all servers of a cluster read and change.

A change compares the mod revision of the key that it was made from, and is repeated if another one
came first. A key whose value cannot be decoded, such as one that another program has written,
counts as the default, and is replaced by the next change.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import time_limit
from leasehold.engine.values import KeyValue
from leasehold.errors import TooBusy
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Target

CALL_S: Final = 10.0
"""The timeout of one call to the engine."""

MAX_CONFLICTS: Final = 100
"""How often a change is repeated because another one came first."""

T = TypeVar("T")


class Stored(NamedTuple, Generic[T]):
    """A value, and the revision at which its key was written last; 0 if there is no key."""

    value: T
    revision: int


class SharedValue(Generic[T]):
    """The value of a key."""

    def __init__(
        self,
        engine: Engine,
        key: bytes,
        default: T,
        *,
        decode: Callable[[bytes], T],
        encode: Callable[[T], bytes],
    ) -> None:
        """`decode` raises ValueError or `DecodeError` if a value is not valid.

        `encode` returns the same bytes for the same value. It may refuse one with ValueError.
        """
        self._engine = engine
        self.key = key
        self._default = default
        self._decode = decode
        self._encode = encode

    async def read(self) -> Stored[T]:
        """Return the value; the default if it was never changed."""
        async with time_limit(CALL_S, self._engine):
            found = await self._engine.range(self.key)
        return self.of(found.pairs)

    async def update(self, change: Callable[[T], T]) -> Stored[T]:
        """Change the value; `change` returns the new one, and may be called several times.

        Nothing is written if the value stays as it is, or if `change` raises an error.
        """
        stored = await self.read()
        for _ in range(MAX_CONFLICTS):
            value = change(stored.value)
            encoded = self._encode(value)
            if encoded == self._encode(stored.value):  # equal values may differ, such as in TLS
                return stored
            put = Put(self.key, encoded)
            is_same = Compare(self.key, Target.MOD_REVISION, Relation.EQUAL, stored.revision)
            async with time_limit(CALL_S, self._engine):
                done = await self._engine.txn([is_same], [put], [Range(self.key)])
            if done.succeeded:
                return Stored(value, done.revision)
            stored = self.of(done.results[0].pairs)
        raise TooBusy(
            f"key {self.key.decode()} is changed by other servers at the same time: try again"
        )

    def of(self, pairs: Sequence[KeyValue]) -> Stored[T]:
        """Return the value from the result of reading the key."""
        if not pairs:
            return Stored(self._default, 0)
        try:
            value = self._decode(pairs[0].value)
        except (DecodeError, ValueError):
            value = self._default
        return Stored(value, pairs[0].mod_revision)
