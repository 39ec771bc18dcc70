"""Calls that operators make: of the cluster, and of maintenance."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import grpc

from leasehold.wire import cluster_pb2 as cluster
from leasehold.wire import maintenance_pb2 as upkeep
from tests.conformance.client import CALL_S, Client, R

NO_SPACE: Final = "etcdserver: mvcc: database space exceeded"
CORRUPT: Final = "etcdserver: corrupt cluster"
QUOTA_BYTES: Final = 4 * 1024 * 1024
QUOTAS: Final = {"real": ["--quota-backend-bytes", str(QUOTA_BYTES)], "ours": ["--quota", "4MiB"]}
WAIT_S: Final = 60.0
UPDATE_S: Final = 2.0

Start = Callable[[], AbstractContextManager[Client]]
"""Starts a server, and, called again, starts it again."""


class Operator:
    """Asks a server what only its operators want to know."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def members(self) -> cluster.MemberListResponse:
        """List the members."""
        return self.cluster("MemberList", cluster.MemberListRequest(), cluster.MemberListResponse)

    def me(self) -> int:
        """Give the id of the only member."""
        (member,) = self.members().members
        return member.ID

    def cluster(self, method: str, request: Any, response_type: type[R]) -> R:
        """Call a method of the cluster."""
        body = self._client.raw(f"/etcdserverpb.Cluster/{method}", request.SerializeToString())
        return self._client.checked(response_type, body)

    def update(self, member: int, *urls: str) -> Any:
        """Say where a member is reached by others.

        etcd drops a change of its members, without an answer, if it comes before the last one is
        marked as applied, which is a moment after that one was answered. So it is sent again.
        """
        request = cluster.MemberUpdateRequest(ID=member, peerURLs=urls).SerializeToString()
        give_up_at = time.monotonic() + WAIT_S
        while True:
            call = self._client.begin("/etcdserverpb.Cluster/MemberUpdate", request, UPDATE_S)
            try:
                return self._client.checked(cluster.MemberUpdateResponse, call.result())
            except grpc.RpcError as error:
                is_dropped = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                if not is_dropped or time.monotonic() > give_up_at:
                    raise

    def add(self, *urls: str) -> Any:
        """Add a member."""
        request = cluster.MemberAddRequest(peerURLs=urls)
        return self.cluster("MemberAdd", request, cluster.MemberAddResponse)

    def remove(self, member: int) -> Any:
        """Remove a member."""
        request = cluster.MemberRemoveRequest(ID=member)
        return self.cluster("MemberRemove", request, cluster.MemberRemoveResponse)

    def promote(self, member: int) -> Any:
        """Make a learner a full member."""
        request = cluster.MemberPromoteRequest(ID=member)
        return self.cluster("MemberPromote", request, cluster.MemberPromoteResponse)

    def status(self) -> upkeep.StatusResponse:
        """Ask how the server is."""
        return self._ask("Status", upkeep.StatusRequest(), upkeep.StatusResponse)

    def alarms(self, kind: int = upkeep.NONE) -> list[tuple[int, int]]:
        """List alarms: whose, and which."""
        return self._alarm(upkeep.AlarmRequest.GET, kind, 0)

    def activate(self, kind: int, member: int) -> list[tuple[int, int]]:
        """Raise an alarm."""
        return self._alarm(upkeep.AlarmRequest.ACTIVATE, kind, member)

    def deactivate(self, kind: int, member: int) -> list[tuple[int, int]]:
        """Switch an alarm off."""
        return self._alarm(upkeep.AlarmRequest.DEACTIVATE, kind, member)

    def disarm(self) -> None:
        """Switch all alarms off."""
        for member, kind in self.alarms():
            self.deactivate(kind, member)

    @contextmanager
    def alarmed(self, kind: int, member: int) -> Iterator[None]:
        """Have an alarm raised for a while."""
        self.activate(kind, member)
        try:
            yield
        finally:
            self.disarm()

    def hash(self) -> upkeep.HashResponse:
        """Hash everything."""
        return self._ask("Hash", upkeep.HashRequest(), upkeep.HashResponse)

    def hash_kv(self, revision: int = 0) -> upkeep.HashKVResponse:
        """Hash the keys at a revision."""
        request = upkeep.HashKVRequest(revision=revision)
        return self._ask("HashKV", request, upkeep.HashKVResponse)

    def defragment(self) -> bytes:
        """Give space back; the answer as it is."""
        return self._client.raw("/etcdserverpb.Maintenance/Defragment", b"")

    def move_leader(self, member: int) -> bytes:
        """Make another one the leader; the answer as it is."""
        request = upkeep.MoveLeaderRequest(targetID=member).SerializeToString()
        return self._client.raw("/etcdserverpb.Maintenance/MoveLeader", request)

    def downgrade(self, action: int, version: str) -> upkeep.DowngradeResponse:
        """Ask for an older version."""
        request = upkeep.DowngradeRequest(action=action, version=version)  # type: ignore[arg-type]
        return self._ask("Downgrade", request, upkeep.DowngradeResponse)

    def snapshot(self) -> Generator[upkeep.SnapshotResponse, None, None]:
        """Ask for a backup."""
        with grpc.insecure_channel(self._client.endpoint) as channel:
            call = channel.unary_stream(
                "/etcdserverpb.Maintenance/Snapshot",
                upkeep.SnapshotRequest.SerializeToString,
                upkeep.SnapshotResponse.FromString,
            )
            yield from call(upkeep.SnapshotRequest(), timeout=CALL_S)

    def _alarm(self, action: int, kind: int, member: int) -> list[tuple[int, int]]:
        request = upkeep.AlarmRequest(action=action, memberID=member, alarm=kind)  # type: ignore[arg-type]
        answer = self._ask("Alarm", request, upkeep.AlarmResponse)
        return [(each.memberID, each.alarm) for each in answer.alarms]

    def _ask(self, method: str, request: Any, response_type: type[R]) -> R:
        body = self._client.raw(f"/etcdserverpb.Maintenance/{method}", request.SerializeToString())
        return self._client.checked(response_type, body)


def until(condition: Callable[[], bool]) -> bool:
    """Ask again and again: etcd writes a moment after it answers, ours raises alarms so."""
    give_up_at = time.monotonic() + WAIT_S
    while not (is_so := condition()) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return is_so
