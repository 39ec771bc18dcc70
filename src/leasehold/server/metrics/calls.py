"""The calls of a server by method, in the names that gRPC's usual metrics have."""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pool import DescriptorPool

from leasehold.errors import Status
from leasehold.rpc.routes import Methods
from leasehold.rpc.tally import Tally
from leasehold.server.metrics.text import Exposition, Labels

_KINDS: Final = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}


class Calls:
    """The methods that are shown: those that the pool knows."""

    def __init__(self, methods: Methods, pool: DescriptorPool) -> None:
        self._tallies: list[tuple[dict[str, str], Tally]] = []
        for path, method in methods.items():
            service, _, name = path.removeprefix("/").partition("/")
            found = pool.FindServiceByName(service).FindMethodByName(name)
            kind = _KINDS[found.client_streaming, found.server_streaming]
            labels = {"grpc_type": kind, "grpc_service": service, "grpc_method": name}
            self._tallies.append((labels, method.tally))

    @property
    def open_watches(self) -> int:
        """How many streams of etcd's watches are open."""
        return sum(
            tally.begun - tally.ended
            for labels, tally in self._tallies
            if labels["grpc_service"] == "etcdserverpb.Watch"
        )

    def show(self, out: Exposition) -> None:
        """Add all methods."""
        begun = [(labels, tally.begun) for labels, tally in self._tallies]
        out.family("grpc_server_started_total", "counter", "Calls that were begun.", begun)
        what = "Calls that are over, by what they ended with."
        out.family("grpc_server_handled_total", "counter", what, self._ended())

    def _ended(self) -> Iterator[tuple[Labels, int]]:
        for labels, tally in self._tallies:
            yield {**labels, "grpc_code": "OK"}, tally.succeeded
            for status, count in tally.failures.items():
                yield {**labels, "grpc_code": _code(status)}, count


def _code(status: Status) -> str:
    """Give a status as Go writes it, and dashboards look for it."""
    if status is Status.CANCELLED:
        return "Canceled"
    return status.name.title().replace("_", "")
