"""`Key`: a key in a transaction: what must hold of it, and what is to be done with it.

Key("config").value == "old"      Key("lock").is_missing()
Key("config").put("new")          Key("jobs/", prefix=True).delete()
"""

from leasehold.client.lease_like import LeaseLike, lease_id
from leasehold.client.texts import Octets, octets_of, range_of
from leasehold.core.ops import Compare, Delete, Put, Range, Relation, Target


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
        raise TypeError("a property of a key has no value here: compare it, to make a condition")

    def _compare(self, relation: Relation, other: object) -> Compare:
        operand: int | bytes
        if self._target is Target.VALUE:
            if not isinstance(other, bytes | str):
                raise TypeError(f"a value is compared with bytes or str, not {other!r}")
            operand = octets_of(other, "a value")
        elif isinstance(other, bool) or not isinstance(other, int):
            raise TypeError(f"{self._target.name.lower()} is compared with an int, not {other!r}")
        else:
            operand = other
        return Compare(self._key, self._target, relation, operand, self._end)


class Key:
    """A key, or with `prefix` all keys that begin with it."""

    __slots__ = ("_end", "_key")

    def __init__(self, key: Octets, *, prefix: bool = False) -> None:
        self._key, self._end = range_of(key, b"", prefix=prefix)

    # What may be compared.

    @property
    def value(self) -> Operand:
        """What it is set to; a key that is not there fails any comparison."""
        return Operand(self._key, self._end, Target.VALUE)

    @property
    def version(self) -> Operand:
        """How often it was set since it was created; 0 if it is not there."""
        return Operand(self._key, self._end, Target.VERSION)

    @property
    def create_revision(self) -> Operand:
        """The revision that created it; 0 if it is not there."""
        return Operand(self._key, self._end, Target.CREATE_REVISION)

    @property
    def mod_revision(self) -> Operand:
        """The revision that changed it last; 0 if it is not there."""
        return Operand(self._key, self._end, Target.MOD_REVISION)

    @property
    def lease(self) -> Operand:
        """The lease that it ends with; 0 for none."""
        return Operand(self._key, self._end, Target.LEASE)

    def exists(self) -> Compare:
        """It is there; of a prefix: all of them are, which they are."""
        return self.version > 0

    def is_missing(self) -> Compare:
        """It is not there; of a prefix: none is."""
        return self.version == 0

    # What can be done.

    def put(
        self, value: Octets | None, *, lease: LeaseLike = None, keep_lease: bool = False
    ) -> Put:
        """Set it, and let it end with a lease; as for `kv.put`."""
        if self._end:
            raise ValueError("all keys of a prefix cannot be put at once: name one key")
        if keep_lease and lease is not None:
            raise ValueError("lease and keep_lease exclude each other: give one of them")
        octets = None if value is None else octets_of(value, "value")
        return Put(self._key, octets, None if keep_lease else lease_id(lease))

    def delete(self) -> Delete:
        """Delete it, or all of them."""
        return Delete(self._key, self._end)

    def get(self, *, limit: int = 0) -> Range:
        """Read it, or all of them."""
        return Range(self._key, self._end, limit=limit)
