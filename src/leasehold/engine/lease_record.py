"""What a store knows of a lease, beside its deadline."""

from collections.abc import Iterable
from sys import intern
from typing import Final

from leasehold.core.duration import NEVER
from leasehold.errors import LeaseFull
from leasehold.wire.encode import long_varint

MAX_KEY_BYTES: Final = 8 * 1024 * 1024
"""The names of the keys of one lease together."""

UNRENEWED: Final = 0.0
"""The `promised_s` of a lease that has not been renewed since a crash: see `engine.remaining`.

It is less than any term, so the first renewal is recorded before it is answered.
"""

_NO_KEYS: Final[frozenset[bytes]] = frozenset()
_NOT_YET: Final = -NEVER


class LeaseRecord:
    """What a store knows of a lease, beside its deadline."""

    __slots__ = (
        "answer",
        "answer_header",
        "encoded_id",
        "holder",
        "id",
        "key_bytes",
        "keys",
        "promised_s",
        "told_at",
        "ttl_s",
    )

    def __init__(
        self,
        lease: int,
        ttl_s: float,
        promised_s: float | None = None,
        holder: str = "",
        encoded_id: bytes | None = None,
    ) -> None:
        self.id = lease
        self.encoded_id = long_varint(lease) if encoded_id is None else encoded_id
        self.ttl_s = ttl_s
        self.promised_s = ttl_s if promised_s is None else promised_s
        """How long it runs at least after a restart, as the journal has it."""
        self.keys: set[bytes] | frozenset[bytes] = _NO_KEYS  # a set of its own once it has any
        self.key_bytes = 0
        self.answer = b""
        """The encoded answer to a renewal, valid with the header `answer_header`."""
        self.answer_header: bytes | None = None
        self.holder = intern(holder)  # mostly one that has others, too
        self.told_at = _NOT_YET
        """When watchers were last told of a renewal, in lease time."""

    def attach(self, key: bytes) -> None:
        """Let a key end with this lease."""
        if key in self.keys:
            return
        self.key_bytes += len(key)
        if isinstance(self.keys, set):
            self.keys.add(key)
        else:
            self.keys = {key}

    def detach(self, key: bytes) -> None:
        """Let a key no longer end with this lease."""
        if isinstance(self.keys, set) and key in self.keys:
            self.keys.remove(key)
            self.key_bytes -= len(key)

    def check_room(self, key: bytes, max_keys: int) -> None:
        """Refuse a further key: all of them must be deleted at one revision, in one row."""
        if len(self.keys) >= max_keys or self.key_bytes + len(key) > MAX_KEY_BYTES:
            self.check_room_for((key,), max_keys)

    def check_room_for(self, keys: Iterable[bytes], max_keys: int) -> None:
        """Refuse further keys if they are too many."""
        new = [key for key in keys if key not in self.keys]
        key_bytes = self.key_bytes + sum(map(len, new))
        if new and (len(self.keys) + len(new) > max_keys or key_bytes > MAX_KEY_BYTES):
            raise LeaseFull(self.id, max_keys, MAX_KEY_BYTES)
