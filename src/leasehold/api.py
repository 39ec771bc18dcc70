"""All public names of `leasehold`: `leasehold.Landlord`, for example, is imported from here.

It takes long to import, so `leasehold` does that when the first of these names is used.
"""

from leasehold.admin.client import Admin, AdministeredService
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
from leasehold.discovery.client import DiscoveryInfo, DiscoveryRegistration, RemoteDiscovery
from leasehold.discovery.discovery import Discovery
from leasehold.discovery.join import Join
from leasehold.discovery.locators import Locator
from leasehold.discovery.registrar_events import RegistrarEvent
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
    DirectoryNotEmpty,
    DuplicateKey,
    EmptyKey,
    EndReason,
    FileAlreadyOpen,
    FileDamaged,
    FileExists,
    FileNotFound,
    FilesError,
    ForeignJournal,
    Forked,
    FutureRevision,
    HistoryLost,
    IsADirectory,
    JournalFailed,
    LeaseBatchError,
    LeaseDenied,
    LeaseExists,
    LeaseExpired,
    LeaseFull,
    LeaseholdError,
    LeaseLost,
    LeaseUnmarshalError,
    LockDenied,
    LockLost,
    LookupUnmarshalError,
    NoSpace,
    NoSuchObject,
    NotADirectory,
    NotHeld,
    PermissionDenied,
    RecoveryInProgress,
    RemoteError,
    SessionExpired,
    ShardLost,
    StaleToken,
    Status,
    StorageError,
    TooBusy,
    TooFewReplicas,
    TooLarge,
    TooManyOperations,
    Unhealthy,
    UnknownKey,
    UnknownLease,
    UnsupportedOperation,
    is_definite,
)
from leasehold.events.callback_dispatch import EventRegistration
from leasehold.events.client import Mailbox
from leasehold.fencing import Fence, FencedFile, fenced, make_fence_table
from leasehold.fencing.token import Token
from leasehold.files.client import Files
from leasehold.files.holder import HolderInfo, OpenFileInfo
from leasehold.files.lease_manager import LeaseManager
from leasehold.files.namespace import FileInfo
from leasehold.files.reader import FileReader
from leasehold.files.state import FilesConfig, FileState
from leasehold.files.writer import FileWriter
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
from leasehold.registry.client import LookupResult, Registration, Registry, ServiceEvent
from leasehold.registry.codecs import (
    decode_descriptor,
    register_type,
    service_item,
    service_template,
)
from leasehold.registry.health import (
    CommandCheck,
    FunctionCheck,
    GrpcCheck,
    HealthCheck,
    HttpCheck,
    TcpCheck,
)
from leasehold.registry.named_items import Service, ServiceChange, ServiceChangeKind
from leasehold.registry.registered_service import RegisteredService
from leasehold.registry.state import Health, Transition, attribute_set
from leasehold.renewal.client import RenewalSet, SetInfo
from leasehold.renewal.references import LeaseReference, reference_of
from leasehold.renewal.set_events import ExpirationWarning, RenewalFailure
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
    "Admin",
    "AdministeredService",
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
    "CommandCheck",
    "Compacted",
    "Compare",
    "ConnectFailed",
    "ConnectionLost",
    "DamagedJournal",
    "Delete",
    "DeleteResult",
    "DirectoryInUse",
    "DirectoryNotEmpty",
    "Discovery",
    "DiscoveryInfo",
    "DiscoveryRegistration",
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
    "EventRegistration",
    "Events",
    "ExpirationWarning",
    "ExpiryStrategy",
    "Features",
    "Fence",
    "FencedFile",
    "FileAlreadyOpen",
    "FileDamaged",
    "FileExists",
    "FileInfo",
    "FileNotFound",
    "FileReader",
    "FileState",
    "FileWriter",
    "Files",
    "FilesConfig",
    "FilesError",
    "FixedPolicy",
    "ForeignJournal",
    "Forever",
    "Forked",
    "FunctionCheck",
    "FutureRevision",
    "Grantor",
    "GrpcCheck",
    "Guard",
    "Health",
    "HealthCheck",
    "HeldLease",
    "HistoryLost",
    "Holder",
    "HolderInfo",
    "HttpCheck",
    "IsADirectory",
    "Join",
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
    "LeaseExpired",
    "LeaseFull",
    "LeaseInfo",
    "LeaseLost",
    "LeaseManager",
    "LeasePolicy",
    "LeaseReference",
    "LeaseRequest",
    "LeaseUnmarshalError",
    "LeaseView",
    "Leased",
    "LeaseholdError",
    "Limits",
    "Listener",
    "LoadPolicy",
    "Locator",
    "Lock",
    "LockDenied",
    "LockEvent",
    "LockEventKind",
    "LockLost",
    "LookupResult",
    "LookupUnmarshalError",
    "Mailbox",
    "NoSpace",
    "NoSuchObject",
    "NotADirectory",
    "NotHeld",
    "NoticeKind",
    "Observation",
    "OpenFileInfo",
    "Outcome",
    "PermissionDenied",
    "Permit",
    "Put",
    "PutResult",
    "QueueGuard",
    "RWLock",
    "Range",
    "RangeResult",
    "RecoveryInProgress",
    "RegisteredService",
    "RegistrarEvent",
    "Registration",
    "Registry",
    "Relation",
    "RemoteDiscovery",
    "RemoteError",
    "RemoteLandlord",
    "RemoteLease",
    "RenewalFailure",
    "RenewalManager",
    "RenewalNotice",
    "RenewalSet",
    "Renewed",
    "Requested",
    "Semaphore",
    "Service",
    "ServiceChange",
    "ServiceChangeKind",
    "ServiceEvent",
    "SessionExpired",
    "SetInfo",
    "ShardLost",
    "Signal",
    "SortBy",
    "StaleToken",
    "Status",
    "StorageError",
    "SystemClock",
    "Target",
    "TcpCheck",
    "Token",
    "TooBusy",
    "TooFewReplicas",
    "TooLarge",
    "TooManyOperations",
    "Transition",
    "Txn",
    "TxnResult",
    "Uncounted",
    "Unhealthy",
    "UnknownKey",
    "UnknownLease",
    "UnsupportedOperation",
    "UntilPolicy",
    "Watch",
    "attribute_set",
    "client_tls",
    "connect",
    "decode_descriptor",
    "exact",
    "fenced",
    "is_definite",
    "lazy",
    "make_fence_table",
    "open_engine",
    "per_lease",
    "polling",
    "prefix_end",
    "reference_of",
    "register_type",
    "serve_landlord",
    "service_item",
    "service_template",
]
