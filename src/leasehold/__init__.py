"""Leasehold: promises with an end, on any resource."""

from leasehold.batch import LeaseBatch
from leasehold.clock import SYSTEM_CLOCK, Clock, SystemClock
from leasehold.core.duration import (
    ANY,
    FOREVER,
    AnyDuration,
    Duration,
    DurationLike,
    End,
    Forever,
    Requested,
)
from leasehold.core.lease_clock import LeaseClock
from leasehold.core.policy import DurationPolicy, FixedPolicy, Leased, LeasePolicy, LoadPolicy
from leasehold.core.renewal_plan import NoticeKind
from leasehold.errors import (
    Closed,
    ConnectionLost,
    DamagedJournal,
    DirectoryInUse,
    EndReason,
    ForeignJournal,
    JournalFailed,
    LeaseBatchError,
    LeaseDenied,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    Status,
    StorageError,
    UnknownKey,
    UnknownLease,
    is_definite,
)
from leasehold.expiry import ExpiryStrategy, exact, lazy, per_lease, polling
from leasehold.landlord import BatchResult, Landlord, LandlordLease, LeaseView
from leasehold.lease import Lease, Outcome
from leasehold.renewal import Listener, RenewalManager, RenewalNotice
from leasehold.until import UntilPolicy

__version__ = "0.1.0.dev0"

__all__ = [
    "ANY",
    "FOREVER",
    "SYSTEM_CLOCK",
    "AnyDuration",
    "BatchResult",
    "Clock",
    "Closed",
    "ConnectionLost",
    "DamagedJournal",
    "DirectoryInUse",
    "Duration",
    "DurationLike",
    "DurationPolicy",
    "End",
    "EndReason",
    "ExpiryStrategy",
    "FixedPolicy",
    "ForeignJournal",
    "Forever",
    "JournalFailed",
    "Landlord",
    "LandlordLease",
    "Lease",
    "LeaseBatch",
    "LeaseBatchError",
    "LeaseClock",
    "LeaseDenied",
    "LeaseExists",
    "LeaseFull",
    "LeasePolicy",
    "LeaseView",
    "Leased",
    "LeaseholdError",
    "Listener",
    "LoadPolicy",
    "NoticeKind",
    "Outcome",
    "RenewalManager",
    "RenewalNotice",
    "Requested",
    "Status",
    "StorageError",
    "SystemClock",
    "UnknownKey",
    "UnknownLease",
    "UntilPolicy",
    "exact",
    "is_definite",
    "lazy",
    "per_lease",
    "polling",
]
