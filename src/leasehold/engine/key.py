"""`Key`: a key in a transaction, for conditions and operations.

For example:

    Key("config").value == "old"      Key("lock").is_missing()
    Key("config").put("new")          Key("jobs/", prefix=True).delete()
"""

from typing import TypeAlias

from leasehold.engine.arguments import LeaseLike, lease_id
from leasehold.engine.interface import prefix_end
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Target

BytesOrText: TypeAlias = bytes | str


def to_bytes(given: BytesOrText, name: str) -> bytes:
    """Return the bytes of a key or a value."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    raise TypeError(f"{name} must be bytes or str, not {type(given).__name__}")


def range_of(key: BytesOrText, end: BytesOrText, *, prefix: bool) -> tuple[bytes, bytes]:
    """Return the first key of a range and its end; an empty prefix has all keys."""
    first, last = to_bytes(key, "key"), to_bytes(end, "end")
    if not prefix:
        return first, last
    if last:
        raise ValueError("end and prefix are mutually exclusive; give only one")
    return (first, prefix_end(first)) if first else (b"\0", b"\0")


class Operand:
    """A property of a key, to be compared: the result is a condition."""

    __slots__ = ("_end", "_key", "_target")

    def __init__(self, key: bytes, end: bytes, target: Target) -> None:
        self._key = key
        self._end = end
        self._target = target

    def __eq__(self, other: object) -> Compare:  # type: ignore[override]
        return self._compare(Relation.EQUAL, other)

    def __ne__(self, other: object) -> Compare:  # type: ignore[override]
        return self._compare(Relation.NOT_EQUAL, other)

    def __lt__(self, other: object) -> Compare:
        return self._compare(Relation.LESS, other)

    def __gt__(self, other: object) -> Compare:
        return self._compare(Relation.GREATER, other)

    __hash__ = None  # type: ignore[assignment]  # it is compared to make a condition

    def __bool__(self) -> bool:
        raise TypeError("a property of a Key has no truth value; compare it to create a condition")

    def _compare(self, relation: Relation, other: object) -> Compare:
        operand: int | bytes
        if self._target is Target.VALUE:
            if not isinstance(other, bytes | str):
                raise TypeError(f"a value is compared with bytes or str, not {other!r}")
            operand = to_bytes(other, "a value")
        elif isinstance(other, bool) or not isinstance(other, int):
            raise TypeError(f"{self._target.name.lower()} is compared with an int, not {other!r}")
        else:
            operand = other
        return Compare(self._key, self._target, relation, operand, self._end)


class Key:
    """A key, or with `prefix` all keys that begin with it."""

    __slots__ = ("_end", "_key")

    def __init__(self, key: BytesOrText, *, prefix: bool = False) -> None:
        self._key, self._end = range_of(key, b"", prefix=prefix)

    # Conditions.

    @property
    def value(self) -> Operand:
        """Its value; a key that does not exist fails any comparison."""
        return Operand(self._key, self._end, Target.VALUE)

    @property
    def version(self) -> Operand:
        """How often it was set since it was created; 0 if it does not exist."""
        return Operand(self._key, self._end, Target.VERSION)

    @property
    def create_revision(self) -> Operand:
        """The revision that created it; 0 if it does not exist."""
        return Operand(self._key, self._end, Target.CREATE_REVISION)

    @property
    def mod_revision(self) -> Operand:
        """The revision that changed it last; 0 if it does not exist."""
        return Operand(self._key, self._end, Target.MOD_REVISION)

    @property
    def lease(self) -> Operand:
        """The lease that it is attached to; 0 for none."""
        return Operand(self._key, self._end, Target.LEASE)

    def exists(self) -> Compare:
        """The condition that it exists; for a prefix always true."""
        return self.version > 0

    def is_missing(self) -> Compare:
        """The condition that it does not exist; for a prefix: no key with it does."""
        return self.version == 0

    # Operations.

    def put(
        self, value: BytesOrText | None, *, lease: LeaseLike = None, keep_lease: bool = False
    ) -> Put:
        """Return an operation that sets the key, for transactions; arguments as for `kv.put`."""
        if self._end:
            raise ValueError("put needs one key, not a prefix")
        if keep_lease and lease is not None:
            raise ValueError("lease and keep_lease are mutually exclusive; give only one")
        data = None if value is None else to_bytes(value, "value")
        return Put(self._key, data, None if keep_lease else lease_id(lease))

    def delete(self, *, previous: bool = False) -> Delete:
        """Return an operation that deletes the key, or all keys with the prefix."""
        return Delete(self._key, self._end, previous)

    def get(self, *, limit: int = 0) -> Range:
        """Return an operation that reads the key, or all keys with the prefix."""
        return Range(self._key, self._end, limit=limit)
