"""The data of a lease in a store, except its deadline."""

from collections.abc import Iterable
from sys import intern
from typing import Final

from leasehold.basics.durations import NEVER
from leasehold.errors import LeaseFull
from leasehold.wire.codec import long_varint

MAX_KEY_BYTES: Final = 8 * 1024 * 1024
"""The limit of the total length of the names of one lease's keys."""

UNRENEWED: Final = 0.0
"""The `promised_s` of a lease not renewed since a crash: see `journal.remaining_terms`.

It is less than any term, so the first renewal is recorded before it is answered.
"""

_NO_KEYS: Final[frozenset[bytes]] = frozenset()
_NOT_YET: Final = -NEVER


class LeaseRecord:
    """The data of a lease in a store, except its deadline."""

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
        """The minimum time it runs after a restart, as recorded in the journal."""
        self.keys: set[bytes] | frozenset[bytes] = _NO_KEYS  # a set of its own once it has any
        self.key_bytes = 0
        self.answer = b""
        """The encoded answer to a renewal, valid with the header `answer_header`."""
        self.answer_header: bytes | None = None
        self.holder = intern(holder)  # most holders have other leases, too
        self.told_at = _NOT_YET
        """When watchers were last sent a renewal of it, in lease time."""

    def attach(self, key: bytes) -> None:
        """Attach a key, which is deleted when the lease ends."""
        if key in self.keys:
            return
        self.key_bytes += len(key)
        if isinstance(self.keys, set):
            self.keys.add(key)
        else:
            self.keys = {key}

    def detach(self, key: bytes) -> None:
        """Detach a key from this lease."""
        if isinstance(self.keys, set) and key in self.keys:
            self.keys.remove(key)
            self.key_bytes -= len(key)

    def check_room(self, key: bytes, max_keys: int) -> None:
        """Refuse a further key: all of them must be deleted at one revision, in one row."""
        if len(self.keys) >= max_keys or self.key_bytes + len(key) > MAX_KEY_BYTES:
            self.check_room_for((key,), max_keys)

    def check_room_for(self, keys: Iterable[bytes], max_keys: int) -> None:
        """Refuse further keys if there are too many."""
        new = [key for key in keys if key not in self.keys]
        key_bytes = self.key_bytes + sum(map(len, new))
        if new and (len(self.keys) + len(new) > max_keys or key_bytes > MAX_KEY_BYTES):
            raise LeaseFull(self.id, max_keys, MAX_KEY_BYTES)
