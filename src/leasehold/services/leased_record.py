"""`LeasedRecord`: a live object of a service; `RecordOwner`: the service, as its records see it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from leasehold.basics.durations import NEVER, Duration, Forever, duration_of
from leasehold.errors import EndReason, NoSuchObject, TooBusy
from leasehold.leases.lease_table import LeasedResource
from leasehold.services.record_storage import StoredRecord
from leasehold.services.shards import ShardOwnership

T = TypeVar("T")


class LeasedRecord(StoredRecord, Generic[T]):
    """A live record of a service."""

    def __init__(
        self, service: str, record_id: str, ownership: ShardOwnership, now: Callable[[], float]
    ) -> None:
        """`now` returns lease time."""
        super().__init__(service, record_id, ownership)
        self._now = now
        self.state: T
        """The state that the service keeps. Replaced after a write without an answer."""
        self.lock = asyncio.Lock()
        """Held by the service while it changes the state, and during `LeasedRecords.write`."""
        self.leased: LeasedResource[LeasedRecord[T]]
        self.is_renewing = False
        self.stored_deadline = NEVER
        """While a renewal is being stored: the end before it, which holds until it is."""
        self.recovery: asyncio.Task[None] | None = None
        """Reads the state again, after a write without an answer."""

    @property
    def end(self) -> float | Forever:
        """When it ends, in lease time."""
        return self.leased.end

    @property
    def remaining_s(self) -> float:
        """How long it has to run, in lease time; 0 if it has ended."""
        if self.is_ended:
            return 0.0
        return max(0.0, min(self.leased.deadline, self.stored_deadline) - self._now())

    @property
    def remaining(self) -> Duration:
        """The same as a duration, which may be `FOREVER`."""
        return duration_of(self.remaining_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing may be sent for it: it has ended, or its shard is lost, by the clock."""
        return self.remaining_s <= 0.0 or not self.ownership.is_valid

    def check_live(self) -> None:
        """Raise unless something may be sent for it now: `NoSuchObject` or `ShardLost`."""
        self.check()
        if self.remaining_s <= 0.0:
            if self.leased.deadline > self._now():
                raise TooBusy(f"renewal of {self.service} {self.id} is not stored yet: retry")
            raise NoSuchObject(self.service, self.id)

    def __repr__(self) -> str:
        return f"<LeasedRecord {self.service}/{self.shard:02x}/{self.id}>"


class RecordOwner(Protocol[T]):
    """The service that records belong to. All but `load` must not raise."""

    def load(self, record: LeasedRecord[T], rows: Mapping[bytes, bytes]) -> T:
        """Return the state of a record from its plain keys: values by suffix, none if it is new."""
        ...

    def started(self, record: LeasedRecord[T]) -> None:
        """The record is live, with its state: start timers, renewals and deliveries."""
        ...

    def renewed(self, record: LeasedRecord[T]) -> None:
        """The end of a record has moved: by a renewal, or back if that could not be stored."""
        ...

    def stopped(self, record: LeasedRecord[T], reason: EndReason | None) -> None:
        """Stop everything of a record now: it has ended, or without a reason, was unloaded."""
        ...
