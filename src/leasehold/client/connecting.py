"""`leasehold.connect`: a client of a server or a cluster."""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from leasehold.basics.durations import check_seconds
from leasehold.basics.pending import Pending
from leasehold.client.client import Client
from leasehold.engine.remote.caller import RANGE
from leasehold.engine.remote.remote_engine import RemoteEngine, lease_channel
from leasehold.engine.time_limits import TIMEOUT_S
from leasehold.errors import ClusterMismatch, LeaseholdError
from leasehold.grpc.channel import Channel
from leasehold.grpc.endpoints import Endpoints
from leasehold.grpc.protocol import RpcError
from leasehold.locks.recipe_context import check_client
from leasehold.sessions.client_session import SESSION_TTL_S
from leasehold.wire import rpc_pb2 as pb

VARIABLE: Final = "LEASEHOLD_ENDPOINTS"
"""Addresses of servers, separated by commas, for programs that do not give any."""

DEFAULT_ENDPOINT: Final = "127.0.0.1:2379"


CLUSTER_CHECK_S: Final = 0.5
"""How long `connect` waits for the cluster ids of the other endpoints. One that does not answer in
this time is checked when the client connects to it."""

_ANY_MEMBER: Final = pb.RangeRequest(key=b"\0", count_only=True, serializable=True)
"""Answered by any member of a cluster, also by one without a leader."""


def endpoints_of(given: Endpoints | None, environment: Mapping[str, str] = os.environ) -> Endpoints:
    """Return the addresses of servers: as given, from the environment, or the default."""
    if given is not None:
        return [each.strip() for each in given.split(",")] if isinstance(given, str) else given
    named = environment.get(VARIABLE, "")
    return [each.strip() for each in named.split(",") if each.strip()] or [DEFAULT_ENDPOINT]


def connect(
    endpoints: Endpoints | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    timeout: float | timedelta = TIMEOUT_S,
    session_ttl: float | timedelta = SESSION_TTL_S,
    name: str | None = None,
) -> Pending[Client]:
    """Connect to a Leasehold server, or an etcd cluster: to be awaited, or entered.

        async with leasehold.connect("127.0.0.1:2379") as client:
            await client.kv.put("greeting", "hello")

    `endpoints` is one address or several of one cluster; by default the value of
    `LEASEHOLD_ENDPOINTS`, or else 127.0.0.1:2379. `tls` is a context as returned by `client_tls`.
    `timeout` is for connecting and for each call. `session_ttl` is the TTL of the lease of all
    locks of the client, and `name` the name that others see as their holder, by default `host:pid`.
    Raises `ConnectFailed` if no endpoint answers, and `ClusterMismatch` if they belong to different
    clusters.
    """
    places = endpoints_of(endpoints)
    timeout_s = check_seconds(timeout, "timeout")
    make_channel = partial(lease_channel, tls=tls)
    make_client = partial(Client, timeout=timeout_s, session_ttl=session_ttl, name=name)
    check_client(session_ttl, name)
    make_channel(places)  # invalid arguments are refused immediately

    async def make() -> Client:
        engine = RemoteEngine(make_channel(places))
        try:
            async with asyncio.timeout(timeout_s):
                await engine.start()
                await _check_clusters(engine, make_channel)
        except BaseException as error:
            trouble = engine.trouble
            await engine.close()
            if isinstance(error, TimeoutError):
                why = f": {trouble}" if trouble else ""
                raise TimeoutError(f"no answer within {timeout_s:g} s{why}") from error
            raise
        return make_client(engine)

    return Pending(make, "leasehold.connect()", on_loop_only=False)


async def _check_clusters(engine: RemoteEngine, make_channel: Callable[[str], Channel]) -> None:
    """Raise `ClusterMismatch` if another endpoint belongs to another cluster.

    Separate servers are separate lock tables: two clients that list them in different orders would
    hold one lock at the same time.
    """
    first = engine.address
    others = [each for each in engine.endpoints if each != first]
    found = await asyncio.gather(*(_cluster_id(make_channel(each)) for each in others))
    for endpoint, cluster_id in zip(others, found, strict=True):
        if cluster_id not in (0, engine.cluster_id):
            raise ClusterMismatch((first, endpoint), (engine.cluster_id, cluster_id))


async def _cluster_id(channel: Channel) -> int:
    """Ask one endpoint for its cluster id; 0 if it does not answer."""
    try:
        async with asyncio.timeout(CLUSTER_CHECK_S):
            answer = await channel.unary(RANGE, _ANY_MEMBER.SerializeToString())
        return pb.RangeResponse.FromString(answer).header.cluster_id
    except (LeaseholdError, RpcError, OSError, DecodeError):
        return 0
    finally:
        await channel.close()
