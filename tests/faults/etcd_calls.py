"""Calls of etcd's API, each answer with its header as it came."""

from typing import Any, Final, Self

import grpc

from leasehold.wire import rpc_pb2 as pb

CALL_S: Final = 30.0


class EtcdCalls:
    """A connection to a server."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def put(self, key: bytes, value: bytes, lease: int = 0) -> pb.PutResponse:
        """Put a key."""
        request = pb.PutRequest(key=key, value=value, lease=lease)
        answer: pb.PutResponse = self._call("KV/Put", request, pb.PutResponse)
        return answer

    def range(self, key: bytes, end: bytes = b"") -> pb.RangeResponse:
        """Read a key, or all from `key` to before `end`."""
        request = pb.RangeRequest(key=key, range_end=end)
        answer: pb.RangeResponse = self._call("KV/Range", request, pb.RangeResponse)
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

    def lives(self, lease: int) -> bool:
        """Ask whether there is this lease."""
        request = pb.LeaseTimeToLiveRequest(ID=lease)
        answer: pb.LeaseTimeToLiveResponse = self._call(
            "Lease/LeaseTimeToLive", request, pb.LeaseTimeToLiveResponse
        )
        return answer.TTL >= 0

    def keep_alive(self, requests: Any) -> Any:
        """Open a stream of renewals; iterate over the answers."""
        return self._channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            pb.LeaseKeepAliveRequest.SerializeToString,
            pb.LeaseKeepAliveResponse.FromString,
        )(requests, timeout=CALL_S)

    def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/etcdserverpb.{method}", type(request).SerializeToString, answer.FromString
        )
        return call(request, timeout=CALL_S)
