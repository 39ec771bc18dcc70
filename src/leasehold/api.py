"""All public names of `leasehold`: `leasehold.Landlord`, for example, is imported from here.

It takes long to import, so `leasehold` does that when the first of these names is used.
"""

from leasehold.basics.durations import (
    ANY,
    FOREVER,
    AnyDuration,
    Duration,
    DurationLike,
    End,
    Forever,
    Requested,
)
from leasehold.basics.tls import client_tls
from leasehold.client.client import Client
from leasehold.client.connecting import connect
from leasehold.client.opening import open_client
from leasehold.clock import SYSTEM_CLOCK, Clock, SystemClock
from leasehold.engine.embedded import open_engine
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.key import Key
from leasehold.engine.values import (
    DeleteResult,
    Event,
    Events,
    Features,
    KeyValue,
    LeaseInfo,
    Limits,
    PutResult,
    RangeResult,
    Renewed,
    TxnResult,
)
from leasehold.errors import (
    CallFailed,
    CallRefused,
    Closed,
    ClusterMismatch,
    Compacted,
    ConnectFailed,
    ConnectionLost,
    DamagedJournal,
    DirectoryInUse,
    DuplicateKey,
    EmptyKey,
    EndReason,
    ForeignJournal,
    Forked,
    FutureRevision,
    HistoryLost,
    JournalFailed,
    LeaseBatchError,
    LeaseDenied,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    LeaseLost,
    LockDenied,
    LockLost,
    NoSpace,
    NotHeld,
    SessionExpired,
    StaleToken,
    Status,
    StorageError,
    TooBusy,
    TooLarge,
    TooManyOperations,
    Unhealthy,
    UnknownKey,
    UnknownLease,
    is_definite,
)
from leasehold.fencing import Fence, FencedFile, fenced, make_fence_table
from leasehold.fencing.token import Token
from leasehold.keyspace.keyspace import FROM_KEY
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, SortBy, Target, Txn
from leasehold.landlord.landlord import Landlord, LeaseView
from leasehold.landlord.landlord_lease import BatchResult, Grantor, LandlordLease
from leasehold.landlord.landlord_service import LandlordServer, LeaseRequest, serve_landlord
from leasehold.landlord.remote_landlord import RemoteLandlord, RemoteLease
from leasehold.leases.expiry_strategies import ExpiryStrategy, exact, lazy, per_lease, polling
from leasehold.leases.lease import Lease, LeaseBatch, Outcome
from leasehold.leases.lease_clock import LeaseClock
from leasehold.leases.policies import DurationPolicy, FixedPolicy, Leased, LeasePolicy, LoadPolicy
from leasehold.leases.renewal_manager import Listener, RenewalManager, RenewalNotice
from leasehold.leases.renewal_plan import NoticeKind
from leasehold.leases.until_policy import UntilPolicy
from leasehold.locks.barrier import Barrier
from leasehold.locks.election import Election, Leader, Leadership, Observation
from leasehold.locks.lock import Holder, Lock
from leasehold.locks.lock_count import AcquisitionCounts, Uncounted
from leasehold.locks.lock_events import LockEvent, LockEventKind
from leasehold.locks.ownership import Guard
from leasehold.locks.permit import Permit
from leasehold.locks.queued_locks import QueueGuard, RWLock, Semaphore
from leasehold.sessions.held_lease import HeldLease
from leasehold.sessions.kept_lease import Signal
from leasehold.store.housekeeping import AutoCompaction

open = open_client  # noqa: A001  as it is used: `leasehold.open`; not in `__all__`

__all__ = [
    "ANY",
    "FOREVER",
    "FROM_KEY",
    "SYSTEM_CLOCK",
    "AcquisitionCounts",
    "AnyDuration",
    "AutoCompaction",
    "Barrier",
    "BatchResult",
    "CallFailed",
    "CallRefused",
    "Client",
    "Clock",
    "Closed",
    "ClusterMismatch",
    "Compacted",
    "Compare",
    "ConnectFailed",
    "ConnectionLost",
    "DamagedJournal",
    "Delete",
    "DeleteResult",
    "DirectoryInUse",
    "DuplicateKey",
    "Duration",
    "DurationLike",
    "DurationPolicy",
    "Election",
    "EmptyKey",
    "End",
    "EndReason",
    "Engine",
    "Event",
    "Events",
    "ExpiryStrategy",
    "Features",
    "Fence",
    "FencedFile",
    "FixedPolicy",
    "ForeignJournal",
    "Forever",
    "Forked",
    "FutureRevision",
    "Grantor",
    "Guard",
    "HeldLease",
    "HistoryLost",
    "Holder",
    "JournalFailed",
    "Key",
    "KeyValue",
    "Landlord",
    "LandlordLease",
    "LandlordServer",
    "Leader",
    "Leadership",
    "Lease",
    "LeaseBatch",
    "LeaseBatchError",
    "LeaseClock",
    "LeaseDenied",
    "LeaseExists",
    "LeaseFull",
    "LeaseInfo",
    "LeaseLost",
    "LeasePolicy",
    "LeaseRequest",
    "LeaseView",
    "Leased",
    "LeaseholdError",
    "Limits",
    "Listener",
    "LoadPolicy",
    "Lock",
    "LockDenied",
    "LockEvent",
    "LockEventKind",
    "LockLost",
    "NoSpace",
    "NotHeld",
    "NoticeKind",
    "Observation",
    "Outcome",
    "Permit",
    "Put",
    "PutResult",
    "QueueGuard",
    "RWLock",
    "Range",
    "RangeResult",
    "Relation",
    "RemoteLandlord",
    "RemoteLease",
    "RenewalManager",
    "RenewalNotice",
    "Renewed",
    "Requested",
    "Semaphore",
    "SessionExpired",
    "Signal",
    "SortBy",
    "StaleToken",
    "Status",
    "StorageError",
    "SystemClock",
    "Target",
    "Token",
    "TooBusy",
    "TooLarge",
    "TooManyOperations",
    "Txn",
    "TxnResult",
    "Uncounted",
    "Unhealthy",
    "UnknownKey",
    "UnknownLease",
    "UntilPolicy",
    "Watch",
    "client_tls",
    "connect",
    "exact",
    "fenced",
    "is_definite",
    "lazy",
    "make_fence_table",
    "open_engine",
    "per_lease",
    "polling",
    "prefix_end",
    "serve_landlord",
]
