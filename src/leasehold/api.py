"""All that `leasehold` offers by name: `leasehold.Landlord` is here first.

It is long to import, so `leasehold` does that when the first of these names is asked for.
"""

from leasehold.batch import LeaseBatch
from leasehold.client.client import Client
from leasehold.client.connecting import connect
from leasehold.client.held_lease import HeldLease
from leasehold.client.key import Key
from leasehold.client.opening import open_client
from leasehold.client.signal import Signal
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
from leasehold.core.keyspace import FROM_KEY
from leasehold.core.lease_clock import LeaseClock
from leasehold.core.ops import Compare, Delete, Put, Range, Relation, SortBy, Target, Txn
from leasehold.core.policy import DurationPolicy, FixedPolicy, Leased, LeasePolicy, LoadPolicy
from leasehold.core.renewal_plan import NoticeKind
from leasehold.engine.housekeeping import AutoCompaction
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.engine.opening import open_engine
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
from leasehold.expiry import ExpiryStrategy, exact, lazy, per_lease, polling
from leasehold.fencing import Fence, FencedFile, fenced, make_fence_table
from leasehold.landlord import BatchResult, Landlord, LandlordLease, LeaseView
from leasehold.lease import Lease, Outcome
from leasehold.recipes.barrier import Barrier
from leasehold.recipes.election import Election, Leadership
from leasehold.recipes.events import LockEvent, LockEventKind
from leasehold.recipes.guard import Guard
from leasehold.recipes.line_guard import LineGuard
from leasehold.recipes.lock import Holder, Lock
from leasehold.recipes.observation import Leader, Observation
from leasehold.recipes.permits import Permit
from leasehold.recipes.rwlock import RWLock
from leasehold.recipes.semaphore import Semaphore
from leasehold.recipes.token import Token
from leasehold.remote_landlord import RemoteLandlord, RemoteLease
from leasehold.renewal import Listener, RenewalManager, RenewalNotice
from leasehold.rpc.tls import client_tls
from leasehold.server.landlord_service import LandlordServer, LeaseRequest, serve_landlord
from leasehold.until import UntilPolicy

open = open_client  # noqa: A001  as it is used: `leasehold.open`; not in `__all__`

__all__ = [
    "ANY",
    "FOREVER",
    "FROM_KEY",
    "SYSTEM_CLOCK",
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
    "LineGuard",
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
