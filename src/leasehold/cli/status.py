"""`leasehold status`: the state of each server, which is queried separately."""

import argparse
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.addresses import Address
from leasehold.cli.connection import (
    ConnectOptions,
    error_text,
    finish,
    with_connect_options,
)
from leasehold.cli.output import emit_json, emit_lines, print_error, size, table
from leasehold.cli.parser import FAILURE, NO_SERVER, OK, Commands, epilog
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from leasehold.engine.remote.caller import Caller
    from leasehold.engine.remote.server_version import ServerInfo

_MEMBERS: Final = "/etcdserverpb.Cluster/MemberList"
_RANGE: Final = "/etcdserverpb.KV/Range"
_LEASES: Final = "/etcdserverpb.Lease/LeaseLeases"
_ALARM: Final = re.compile(r"alarm:\s*(\w+)")
"""In a server's status errors. The Alarm call needs a leader, which may be missing."""

_HEADS: Final = (
    "ENDPOINT",
    "SERVER",
    "LEADER",
    "REVISION",
    "SIZE",
    "KEYS",
    "LEASES",
    "ALARMS",
    "LATENCY",
)


def add_command(commands: Commands) -> None:
    """Add `status` to the commands."""
    parser = commands.add_parser(
        "status",
        help="show the state of each server",
        description="Query each server separately, and show its version, leader, size and alarms.",
        epilog=epilog(
            """
            leasehold status
            leasehold status --json
            """,
            notes="The exit code is 4 if a server does not answer, and 1 if a "
            "server has an alarm or "
            "no leader.",
        ),
    )
    finish(parser, run)


def run(arguments: argparse.Namespace) -> int:
    """Query all servers; return the exit code."""
    import asyncio

    async def main(server: ConnectOptions) -> int:
        rows = await asyncio.gather(*(_ask(each, server) for each in server.endpoints))
        if arguments.json:
            emit_json({"servers": [_json(row) for row in rows]})
        else:
            emit_lines(table(_HEADS, map(_cells, rows)))
        for row in rows:
            if row.error:
                print_error(row.error)
        if any(row.error for row in rows):
            return NO_SERVER
        return OK if all(row.is_well for row in rows) else FAILURE

    return with_connect_options(arguments, main)


@dataclass(slots=True)
class ServerState:
    """The known state of one server."""

    endpoint: str
    error: str = ""
    """Why it has not answered."""
    server: "ServerInfo | None" = None
    cluster_id: int = 0
    member_id: int = 0
    leader_id: int = 0
    leader: str = ""
    members: list[str] = field(default_factory=list)
    revision: int = 0
    size_bytes: int = 0
    used_bytes: int = 0
    alarms: list[str] = field(default_factory=list)
    keys: int | None = None
    """None if unknown, as without a leader."""
    leases: int | None = None
    latency_s: float = 0.0

    @property
    def engine(self) -> str:
        """The URL of the etcd cluster that has its state; empty if it has its own."""
        return "" if self.server is None else self.server.engine

    @property
    def is_well(self) -> bool:
        """Whether it answers, has no alarm and has a leader."""
        return not self.error and not self.alarms and self.leader_id != 0


async def _ask(address: Address, server: ConnectOptions) -> ServerState:
    import asyncio

    from leasehold.engine.remote.caller import Caller, History
    from leasehold.grpc.channel import Channel

    row = ServerState(str(address))
    async with Channel(address, tls=server.tls) as channel:
        caller = Caller(channel, History(lambda _: None))
        try:
            async with asyncio.timeout(server.timeout_s):
                await channel.ready()
                await _ask_status(row, caller)
        except TimeoutError:
            why = channel.trouble or f"{address} accepted the connection"
            row.error = f"no answer within {server.timeout_s:g} s: {why}"
        except (LeaseholdError, OSError) as error:
            text = error_text(error)
            row.error = text if str(address) in text else f"{address}: {text}"
        if not row.error and not row.engine:
            await _ask_more(row, caller, server.timeout_s)
    return row


async def _ask_status(row: ServerState, caller: "Caller") -> None:
    """Query the status that a server returns without a leader."""
    from leasehold.engine.remote.caller import STATUS
    from leasehold.engine.remote.server_version import recognize
    from leasehold.wire import maintenance_pb2

    row.server = await recognize(caller)
    began_s = time.perf_counter()
    status = await caller.ask(
        STATUS, maintenance_pb2.StatusRequest(), maintenance_pb2.StatusResponse, idempotent=True
    )
    row.latency_s = time.perf_counter() - began_s
    row.cluster_id, row.member_id = status.header.cluster_id, status.header.member_id
    row.revision, row.leader_id = status.header.revision, status.leader
    row.size_bytes, row.used_bytes = status.dbSize, status.dbSizeInUse
    row.alarms = sorted({name for each in status.errors for name in _ALARM.findall(each)})


async def _ask_more(row: ServerState, caller: "Caller", timeout_s: float) -> None:
    """Query what may need a leader: members, and the numbers of keys and leases."""
    import asyncio

    from leasehold.wire import cluster_pb2, rpc_pb2

    try:
        async with asyncio.timeout(timeout_s):
            listed = await caller.ask(
                _MEMBERS,
                cluster_pb2.MemberListRequest(linearizable=False),
                cluster_pb2.MemberListResponse,
                idempotent=True,
            )
            names = {each.ID: each.name or f"{each.ID:x}" for each in listed.members}
            row.members = sorted(names.values())
            row.leader = names.get(row.leader_id, "")
            if not row.leader_id:
                return  # there would be no answer
            everything = rpc_pb2.RangeRequest(key=b"\0", range_end=b"\0", count_only=True)
            counted = await caller.ask(_RANGE, everything, rpc_pb2.RangeResponse, idempotent=True)
            row.keys = counted.count
            leases = await caller.ask(
                _LEASES, rpc_pb2.LeaseLeasesRequest(), rpc_pb2.LeaseLeasesResponse, idempotent=True
            )
            row.leases = len(leases.leases)
    except (LeaseholdError, OSError, TimeoutError):
        return  # the known values are shown


def _cells(row: ServerState) -> tuple[Any, ...]:
    if row.error:
        return (row.endpoint, "no answer", *[None] * (len(_HEADS) - 2))
    return (
        row.endpoint,
        _named(row.server),
        _leader(row),
        row.revision,
        None if row.engine else size(row.size_bytes),
        row.keys,
        row.leases,
        ", ".join(row.alarms),
        f"{row.latency_s * 1000:.1f} ms",
    )


def _named(server: "ServerInfo | None") -> str:
    assert server is not None, "it has answered"
    if server.is_leasehold and not server.engine:
        return f"Leasehold (etcd {server.version})"
    return str(server)


def _leader(row: ServerState) -> str:
    if not row.leader_id:
        return "none"
    if row.engine:
        return "of the cluster"
    name = row.leader or f"{row.leader_id:x}"
    return f"{name} (itself)" if row.leader_id == row.member_id else name


def _json(row: ServerState) -> dict[str, Any]:
    if row.error or row.server is None:
        return {"endpoint": row.endpoint, "error": row.error}
    return {
        "endpoint": row.endpoint,
        "server": "leasehold" if row.server.is_leasehold else "etcd",
        "etcd_version": row.server.version,
        "engine": row.engine or None,
        "cluster_id": f"{row.cluster_id:x}",
        "member_id": f"{row.member_id:x}",
        "leader_id": f"{row.leader_id:x}" if row.leader_id else None,
        "members": row.members,
        "revision": row.revision,
        "size_bytes": None if row.engine else row.size_bytes,
        "used_bytes": None if row.engine else row.used_bytes,
        "keys": row.keys,
        "leases": row.leases,
        "alarms": row.alarms,
        "latency_ms": round(row.latency_s * 1000, 3),
    }
