"""The client for blocking code: the same names, without `await`.

    import leasehold.sync

    with leasehold.sync.connect("127.0.0.1:2379") as client:
        client.kv.put("greeting", "hello")

All clients of a process share one thread with an event loop, which renews leases while the program
does something else. It is started when the first client is created.
"""

import importlib
import typing

from leasehold.sync.generated.admin_client import Admin
from leasehold.sync.generated.barrier import Barrier
from leasehold.sync.generated.client import Client
from leasehold.sync.generated.connecting import connect
from leasehold.sync.generated.discovery import Discovery
from leasehold.sync.generated.discovery_client import DiscoveryRegistration, RemoteDiscovery
from leasehold.sync.generated.election import Election, Leadership
from leasehold.sync.generated.events_client import Mailbox
from leasehold.sync.generated.files_client import Files
from leasehold.sync.generated.held_lease import HeldLease
from leasehold.sync.generated.join import Join
from leasehold.sync.generated.kv import KV, TxnBuilder
from leasehold.sync.generated.landlord import Landlord
from leasehold.sync.generated.lease import Lease
from leasehold.sync.generated.permits import Permits
from leasehold.sync.generated.queued_locks import RWLock, Semaphore
from leasehold.sync.generated.reader import FileReader
from leasehold.sync.generated.registered_service import RegisteredService
from leasehold.sync.generated.registry_client import Registration, Registry
from leasehold.sync.generated.remote_landlord import RemoteLandlord
from leasehold.sync.generated.renewal_client import RenewalSet
from leasehold.sync.generated.renewal_manager import RenewalManager, RenewalNotice
from leasehold.sync.generated.writer import FileWriter
from leasehold.sync.guard import Guard
from leasehold.sync.iterators import Observation, Watch
from leasehold.sync.lease_base import Signal
from leasehold.sync.lock import Lock

if typing.TYPE_CHECKING:
    from leasehold.sync.generated.opening import open_client

    open = open_client  # noqa: A001  as it is used: `sync.open`; not in `__all__`
else:

    def __getattr__(name: str) -> typing.Any:
        """Import the embedded engine only for programs that open one: it takes long."""
        if name != "open":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module("leasehold.sync.generated.opening").open_client


__all__ = [
    "KV",
    "Admin",
    "Barrier",
    "Client",
    "Discovery",
    "DiscoveryRegistration",
    "Election",
    "FileReader",
    "FileWriter",
    "Files",
    "Guard",
    "HeldLease",
    "Join",
    "Landlord",
    "Leadership",
    "Lease",
    "Lock",
    "Mailbox",
    "Observation",
    "Permits",
    "RWLock",
    "RegisteredService",
    "Registration",
    "Registry",
    "RemoteDiscovery",
    "RemoteLandlord",
    "RenewalManager",
    "RenewalNotice",
    "RenewalSet",
    "Semaphore",
    "Signal",
    "TxnBuilder",
    "Watch",
    "connect",
]
