"""A landlord in a process of its own that reports every renewal and its sender. For fault tests.

    python renewal_landlord.py

Writes JSON lines to standard output: first `{"address": ...}`, then

    {"renewed": [NAME, ...], "sender": PID}    a request for leases, and the process that sent it
    {"ended": NAME, "reason": REASON}          a lease of the landlord `desks` has ended

The landlord `desks` grants leases for as long as is requested. Leases of `marks` need no grant and
never end: their names begin with a number, `8/NAME`, and each renewal is for that many seconds. So
the lines show which server renews them, however long an earlier one was down.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from leasehold import DurationPolicy, EndReason, Landlord, LeaseRequest
from leasehold.grpc.call_context import CallContext
from leasehold.landlord.batch_messages import Outcomes, wants_in
from leasehold.landlord.landlord_service import LandlordService
from leasehold.leases.lease import Lease
from leasehold.services.forwarding import methods_of
from leasehold.serving.grpc_server import GrpcServer
from leasehold.wire.leases_pb2 import RenewAllRequest

MARKS: Final = "marks"
MAXIMUM_S: Final = 3600.0


def report(**line: object) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def process_of(local: str, peer: str) -> int:
    """Return the process that has the other end of a connection; 0 if there is none any more."""
    ends = (_as_in_table(peer), _as_in_table(local))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1], fields[2]) == ends:
            return _owner_of(f"socket:[{fields[9]}]")
    return 0


def _as_in_table(address: str) -> str:
    host, _, port = address.rpartition(":")
    return bytes(reversed([int(each) for each in host.split(".")])).hex().upper() + (
        f":{int(port):04X}"
    )


def _owner_of(socket: str) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(fd.readlink()) == socket for fd in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:  # it has ended, or belongs to another user
            continue
    return 0


class ReportingLandlord:
    """The leases of `desks` and of `marks`."""

    def __init__(self) -> None:
        self._landlord: Landlord[str] = Landlord(
            DurationPolicy(MAXIMUM_S, MAXIMUM_S), name="desks", on_ended=self._ended
        )
        self._service = LandlordService(self._landlord, self._grant)
        self._names: dict[object, str] = {}
        self._senders: dict[str, int] = {}
        self.address = ""

    def _ended(self, name: str, reason: EndReason) -> None:
        report(ended=name, reason=str(reason))

    def _grant(self, request: LeaseRequest) -> Lease:
        lease = self._landlord.grant(request.resource, request.duration)
        self._names[lease.cookie] = request.resource
        return lease

    async def _renew_all(self, message: bytes, context: CallContext) -> bytes:
        request = RenewAllRequest.FromString(message)
        wants = wants_in(request)
        peer = context.peer.address
        if peer not in self._senders:
            self._senders[peer] = process_of(self.address, peer)
        names = [self._names.get(cookie, str(cookie)) for cookie, _ in wants]
        report(renewed=names, sender=self._senders[peer])
        if request.grantor != MARKS:
            answer = self._service.renew_all(message)
            assert isinstance(answer, tuple), "a test has few leases"
            return answer[0]
        outcomes = Outcomes()
        outcomes.extend([float(name.partition("/")[0]) for name in names])
        return outcomes.renewed()

    async def serve(self) -> None:
        """Serve until the process is ended."""
        renew_all = methods_of("leasehold.v1.Leases", {"RenewAll": self._renew_all})
        server = GrpcServer({**self._service.methods(), **renew_all})
        await server.start(["127.0.0.1:0"])
        self.address = str(server.addresses[0])
        report(address=self.address)
        await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(ReportingLandlord().serve())
