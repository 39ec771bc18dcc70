"""The client for blocking code: the same names, without `await`.

    import leasehold.sync

    with leasehold.sync.connect("127.0.0.1:2379") as client:
        client.kv.put("greeting", "hello")

All clients of a process share one thread with an event loop, which renews leases while the program
does something else. It is started when the first client is made.
"""

from leasehold.sync.client import Client
from leasehold.sync.connecting import connect
from leasehold.sync.held_lease import HeldLease
from leasehold.sync.kv import KV, TxnBuilder
from leasehold.sync.opening import open_client as open  # noqa: A004  it reads as it is used
from leasehold.sync.signals import Signal
from leasehold.sync.watch import Watch

__all__ = ["KV", "Client", "HeldLease", "Signal", "TxnBuilder", "Watch", "connect", "open"]
