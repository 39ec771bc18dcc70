"""Calls of etcd's API, each answer with its header as it came."""

from collections.abc import Iterable
from typing import Any, Final, Self

import grpc

from leasehold.wire import rpc_pb2 as pb

CALL_S: Final = 30.0


OWN_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1),)
"""Without it, all channels to one server share a connection."""


class EtcdCalls:
    """A connection to a server."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint, OWN_CONNECTION)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def put(self, key: bytes, value: bytes, lease: int = 0) -> pb.PutResponse:
        """Put a key."""
        request = pb.PutRequest(key=key, value=value, lease=lease)
        answer: pb.PutResponse = self._call("KV/Put", request, pb.PutResponse)
        return answer

    def range(self, key: bytes, end: bytes = b"", *, revision: int = 0) -> pb.RangeResponse:
        """Read a key, or all from `key` to before `end`, now or at a revision."""
        request = pb.RangeRequest(key=key, range_end=end, revision=revision)
        answer: pb.RangeResponse = self._call("KV/Range", request, pb.RangeResponse)
        return answer

    def delete(self, key: bytes, end: bytes = b"") -> pb.DeleteRangeResponse:
        """Delete a key, or all from `key` to before `end`."""
        request = pb.DeleteRangeRequest(key=key, range_end=end)
        answer: pb.DeleteRangeResponse = self._call(
            "KV/DeleteRange", request, pb.DeleteRangeResponse
        )
        return answer

    def txn(
        self,
        compares: Iterable[pb.Compare] = (),
        success: Iterable[pb.RequestOp] = (),
        failure: Iterable[pb.RequestOp] = (),
    ) -> pb.TxnResponse:
        """Do the one if all conditions hold, and else the other."""
        request = pb.TxnRequest(compare=compares, success=success, failure=failure)
        answer: pb.TxnResponse = self._call("KV/Txn", request, pb.TxnResponse)
        return answer

    def compact(self, revision: int, *, physical: bool = False) -> pb.CompactionResponse:
        """Have the history before a revision forgotten."""
        request = pb.CompactionRequest(revision=revision, physical=physical)
        answer: pb.CompactionResponse = self._call("KV/Compact", request, pb.CompactionResponse)
        return answer

    def grant(self, lease: int, ttl_s: int) -> pb.LeaseGrantResponse:
        """Grant a lease."""
        request = pb.LeaseGrantRequest(ID=lease, TTL=ttl_s)
        answer: pb.LeaseGrantResponse = self._call(
            "Lease/LeaseGrant", request, pb.LeaseGrantResponse
        )
        return answer

    def revoke(self, lease: int) -> pb.LeaseRevokeResponse:
        """Revoke a lease."""
        request = pb.LeaseRevokeRequest(ID=lease)
        answer: pb.LeaseRevokeResponse = self._call(
            "Lease/LeaseRevoke", request, pb.LeaseRevokeResponse
        )
        return answer

    def time_to_live(self, lease: int, *, keys: bool = False) -> pb.LeaseTimeToLiveResponse:
        """Ask how long a lease has to run, and which keys it has; the time is -1 without it."""
        request = pb.LeaseTimeToLiveRequest(ID=lease, keys=keys)
        answer: pb.LeaseTimeToLiveResponse = self._call(
            "Lease/LeaseTimeToLive", request, pb.LeaseTimeToLiveResponse
        )
        return answer

    def lives(self, lease: int) -> bool:
        """Ask whether there is this lease."""
        return self.time_to_live(lease).TTL >= 0

    def leases(self) -> pb.LeaseLeasesResponse:
        """List the leases."""
        request = pb.LeaseLeasesRequest()
        answer: pb.LeaseLeasesResponse = self._call(
            "Lease/LeaseLeases", request, pb.LeaseLeasesResponse
        )
        return answer

    def renew(self, lease: int) -> pb.LeaseKeepAliveResponse:
        """Renew a lease once; the time to live is 0 without it."""
        answer: pb.LeaseKeepAliveResponse
        [answer] = self.keep_alive(iter([pb.LeaseKeepAliveRequest(ID=lease)]))
        return answer

    def keep_alive(self, requests: Any) -> Any:
        """Open a stream of renewals; iterate over the answers."""
        return self._channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            pb.LeaseKeepAliveRequest.SerializeToString,
            pb.LeaseKeepAliveResponse.FromString,
        )(requests, timeout=CALL_S)

    def watch(self, *requests: pb.WatchRequest) -> Any:
        """Open a stream of watches with these requests; iterate over the answers, or cancel it."""
        return self._channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            pb.WatchRequest.SerializeToString,
            pb.WatchResponse.FromString,
        )(iter(requests), timeout=CALL_S)

    def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/etcdserverpb.{method}", type(request).SerializeToString, answer.FromString
        )
        return call(request, timeout=CALL_S)
