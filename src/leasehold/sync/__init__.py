"""The client for blocking code: the same names, without `await`.

    import leasehold.sync

    with leasehold.sync.connect("127.0.0.1:2379") as client:
        client.kv.put("greeting", "hello")

All clients of a process share one thread with an event loop, which renews leases while the program
does something else. It is started when the first client is made.
"""

import importlib
import typing

from leasehold.sync.barrier import Barrier
from leasehold.sync.client import Client
from leasehold.sync.connecting import connect
from leasehold.sync.election import Election, Leadership, Observation
from leasehold.sync.guard import Guard
from leasehold.sync.held_lease import HeldLease
from leasehold.sync.kv import KV, TxnBuilder
from leasehold.sync.lock import Lock
from leasehold.sync.permits import Permits
from leasehold.sync.rwlock import RWLock
from leasehold.sync.semaphore import Semaphore
from leasehold.sync.signals import Signal
from leasehold.sync.watch import Watch

if typing.TYPE_CHECKING:
    from leasehold.sync.opening import open_client

    open = open_client  # noqa: A001  as it is used: `sync.open`; not in `__all__`
else:

    def __getattr__(name: str) -> typing.Any:
        """Import all of an engine for those who open one only: it is long."""
        if name != "open":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module("leasehold.sync.opening").open_client


__all__ = [
    "KV",
    "Barrier",
    "Client",
    "Election",
    "Guard",
    "HeldLease",
    "Leadership",
    "Lock",
    "Observation",
    "Permits",
    "RWLock",
    "Semaphore",
    "Signal",
    "TxnBuilder",
    "Watch",
    "connect",
]
