"""`leasehold.sync.connect`: a client on a server or a cluster, for blocking code."""

import ssl
from datetime import timedelta

from leasehold.client import client as on_loop
from leasehold.client import connecting
from leasehold.client.patience import TIMEOUT_S
from leasehold.pending import Pending
from leasehold.recipes.sessions import SESSION_TTL_S
from leasehold.rpc.endpoints import Endpoints
from leasehold.sync.client import Client
from leasehold.sync.process import loop_thread


def connect(
    endpoints: Endpoints | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    timeout: float | timedelta = TIMEOUT_S,
    session_ttl: float | timedelta = SESSION_TTL_S,
    name: str | None = None,
) -> Client:
    """Connect to a Leasehold server, or an etcd cluster: to be closed, or entered.

        with leasehold.sync.connect("127.0.0.1:2379") as client:
            client.kv.put("greeting", "hello")

    `endpoints` is one address or several of one cluster; without it `LEASEHOLD_ENDPOINTS` counts,
    and else 127.0.0.1:2379. `tls` is a context as `client_tls` makes it. `timeout` is for
    connecting and for each call. `session_ttl` is the term of the lease that all locks of the
    client are under, and `name` what others see as their holder: `host:pid` unless told otherwise.
    Raises `ConnectFailed` if nobody answers.
    """
    pending = connecting.connect(
        endpoints, tls=tls, timeout=timeout, session_ttl=session_ttl, name=name
    )
    return made(pending, timeout)


def made(pending: Pending[on_loop.Client], timeout: float | timedelta) -> Client:
    """Have a client made on the loop; it is closed at the end of the interpreter, if not before."""
    pending.handed_over()
    thread = loop_thread()

    async def make() -> on_loop.Client:
        client = await pending
        thread.clients.add(client)
        return client

    async def undo(client: on_loop.Client) -> None:
        thread.clients.discard(client)
        await client.close()

    return Client(thread, thread.run(make, undo=undo))
