"""A plain client for conformance tests: grpcio, our messages, every answer's header checked."""

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import grpc
import pytest

from leasehold.wire import rpc_pb2 as pb

CALL_S: Final = 60.0
NO_LIMIT: Final = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
OPERATIONS_MAX: Final = 128
LEASE_NOT_FOUND: Final = "etcdserver: requested lease not found"
TRIES_MAX: Final = 5
"""For what may only fail because this machine was too slow."""


METHODS: Final[dict[type[Any], tuple[str, type[Any]]]] = {
    pb.RangeRequest: ("KV/Range", pb.RangeResponse),
    pb.PutRequest: ("KV/Put", pb.PutResponse),
    pb.DeleteRangeRequest: ("KV/DeleteRange", pb.DeleteRangeResponse),
    pb.TxnRequest: ("KV/Txn", pb.TxnResponse),
    pb.CompactionRequest: ("KV/Compact", pb.CompactionResponse),
    pb.LeaseGrantRequest: ("Lease/LeaseGrant", pb.LeaseGrantResponse),
    pb.LeaseRevokeRequest: ("Lease/LeaseRevoke", pb.LeaseRevokeResponse),
    pb.LeaseTimeToLiveRequest: ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveResponse),
    pb.LeaseLeasesRequest: ("Lease/LeaseLeases", pb.LeaseLeasesResponse),
}


def _as_it_is(body: bytes) -> bytes:
    return body


class Response(Protocol):
    """Any answer of etcd's API."""

    @property
    def header(self) -> pb.ResponseHeader:
        """Who answered, and at which revision."""


R = TypeVar("R", bound=Response)


class Client:
    """Unary calls and streams to one server.

    In all headers cluster, member and term must stay the same; as they differ between servers, they
    are cleared after that check, and only the revision is left to compare.
    """

    def __init__(self, endpoint: str, *options: tuple[str, int]) -> None:
        self.endpoint = endpoint
        self._channel = grpc.insecure_channel(endpoint, options=(*NO_LIMIT, *options))
        self._identity: tuple[int, int, int] | None = None

    def close(self) -> None:
        """End all calls."""
        self._channel.close()

    def put(self, key: bytes, value: bytes = b"", **more: Any) -> pb.PutResponse:
        """Put a key."""
        return self._unary("KV/Put", pb.PutRequest(key=key, value=value, **more), pb.PutResponse)

    def range(self, key: bytes, range_end: bytes = b"", **more: Any) -> pb.RangeResponse:
        """Read one key, or all from `key` to before `range_end`."""
        request = pb.RangeRequest(key=key, range_end=range_end, **more)
        return self._unary("KV/Range", request, pb.RangeResponse)

    def delete(self, key: bytes, range_end: bytes = b"", **more: Any) -> pb.DeleteRangeResponse:
        """Delete one key, or all from `key` to before `range_end`."""
        request = pb.DeleteRangeRequest(key=key, range_end=range_end, **more)
        return self._unary("KV/DeleteRange", request, pb.DeleteRangeResponse)

    def txn(
        self,
        compare: Iterable[pb.Compare] = (),
        success: Iterable[pb.RequestOp] = (),
        failure: Iterable[pb.RequestOp] = (),
    ) -> pb.TxnResponse:
        """Do one or the other, depending on conditions."""
        request = pb.TxnRequest(compare=compare, success=success, failure=failure)
        return self._unary("KV/Txn", request, pb.TxnResponse)

    def put_all(self, keys: Sequence[bytes], value: bytes = b"") -> None:
        """Put very many keys, in few transactions."""
        for start in range(0, len(keys), OPERATIONS_MAX):
            self.txn(success=[put_op(key, value) for key in keys[start : start + OPERATIONS_MAX]])

    def compact(self, revision: int, *, physical: bool = False) -> pb.CompactionResponse:
        """Forget what was before a revision."""
        request = pb.CompactionRequest(revision=revision, physical=physical)
        return self._unary("KV/Compact", request, pb.CompactionResponse)

    def grant(self, ttl_s: int, lease: int = 0) -> pb.LeaseGrantResponse:
        """Grant a lease."""
        request = pb.LeaseGrantRequest(TTL=ttl_s, ID=lease)
        return self._unary("Lease/LeaseGrant", request, pb.LeaseGrantResponse)

    def revoke(self, lease: int) -> pb.LeaseRevokeResponse:
        """Revoke a lease."""
        request = pb.LeaseRevokeRequest(ID=lease)
        return self._unary("Lease/LeaseRevoke", request, pb.LeaseRevokeResponse)

    def time_to_live(self, lease: int, *, keys: bool = False) -> pb.LeaseTimeToLiveResponse:
        """Ask how long a lease still runs."""
        request = pb.LeaseTimeToLiveRequest(ID=lease, keys=keys)
        return self._unary("Lease/LeaseTimeToLive", request, pb.LeaseTimeToLiveResponse)

    def leases(self) -> pb.LeaseLeasesResponse:
        """List all leases."""
        return self._unary("Lease/LeaseLeases", pb.LeaseLeasesRequest(), pb.LeaseLeasesResponse)

    def revision(self) -> int:
        """Ask for the current revision."""
        return self.range(b"no such key").header.revision

    def keep_alive(self) -> "Stream[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]":
        """Open a stream of renewals."""
        return Stream(self, "Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)

    def watch(self) -> "Stream[pb.WatchRequest, pb.WatchResponse]":
        """Open a stream of watches."""
        return Stream(self, "Watch/Watch", pb.WatchResponse)

    def ask(self, request: Any) -> Any:
        """Make the call that a request is for."""
        method, response_type = METHODS[type(request)]
        return self._unary(method, request, response_type)

    def raw(self, path: str, body: bytes) -> bytes:
        """Call anything with any bytes."""
        call = self._channel.unary_unary(path, _as_it_is, _as_it_is)
        answer: bytes = call(body, timeout=CALL_S)
        return answer

    def begin(self, path: str, body: bytes, timeout_s: float = CALL_S) -> Any:
        """Call anything with any bytes, and do not wait for the answer."""
        call = self._channel.unary_unary(path, _as_it_is, _as_it_is)
        return call.future(body, timeout=timeout_s)

    def begin_stream(self, path: str, body: bytes) -> Any:
        """Call anything that answers with any number of messages."""
        call = self._channel.unary_stream(path, _as_it_is, _as_it_is)
        return call(body, timeout=CALL_S)

    def raw_stream(self, path: str, requests: Iterator[bytes]) -> Any:
        """Open a stream on anything."""
        return self._channel.stream_stream(path, _as_it_is, _as_it_is)(requests, timeout=CALL_S)

    def _unary(self, method: str, request: Any, response_type: type[R]) -> R:
        body = self.raw(f"/etcdserverpb.{method}", request.SerializeToString())
        return self.checked(response_type, body)

    def checked(self, response_type: type[R], body: bytes) -> R:
        """Parse an answer, check its header, and leave only the revision in it."""
        response = response_type.FromString(body)  # type: ignore[attr-defined]
        header = response.header
        identity = (header.cluster_id, header.member_id, header.raft_term)
        assert all(identity)
        assert self._identity in (None, identity)
        self._identity = identity
        header.ClearField("cluster_id")
        header.ClearField("member_id")
        header.ClearField("raft_term")
        checked: R = response
        return checked


Q = TypeVar("Q")


class Stream(Generic[Q, R]):
    """A bidirectional stream; a receive that takes too long fails with DEADLINE_EXCEEDED."""

    def __init__(self, client: Client, method: str, response_type: type[R]) -> None:
        self._client = client
        self._response_type = response_type
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        requests = iter(self._requests.get, None)
        self._call = client.raw_stream(f"/etcdserverpb.{method}", requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel()
        self.half_close()

    def send(self, request: Any) -> None:
        """Send one message."""
        self.send_raw(request.SerializeToString())

    def send_raw(self, message: bytes) -> None:
        """Send any bytes."""
        self._requests.put(message)

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self._requests.put(None)

    def receive(self) -> R:
        """Wait for the next message."""
        return self._client.checked(self._response_type, next(self._call))

    def rest(self) -> list[R]:
        """Wait for the end of the stream, which must be OK, and give what came before it."""
        return [self._client.checked(self._response_type, body) for body in self._call]


@contextmanager
def fails(code: grpc.StatusCode, text: str) -> Iterator[None]:
    """Expect exactly this error."""
    with pytest.raises(grpc.RpcError) as error:
        yield
    assert (error.value.code(), error.value.details()) == (code, text)


def before_its_end(term_s: float, attempt: Callable[[], None]) -> None:
    """Do what a short lease must live for; again if this machine took as long as its term.

    What fails sooner than that has failed: the lease is there.
    """
    for tries_left in reversed(range(TRIES_MAX)):
        began = time.monotonic()
        try:
            attempt()
        except (AssertionError, grpc.RpcError):
            if not tries_left or time.monotonic() - began < term_s:
                raise
        else:
            return


def header(revision: int) -> pb.ResponseHeader:
    """Make the header that a checked answer has at a revision."""
    return pb.ResponseHeader(revision=revision)


def prefix_end(prefix: bytes) -> bytes:
    """Give the end of the range of all keys with this prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def watch_one(key: bytes, **more: Any) -> pb.WatchRequest:
    """Make the request for a watch."""
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, **more))


def put_op(key: bytes, value: bytes = b"", **more: Any) -> pb.RequestOp:
    """Make the step of a transaction that puts a key."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, **more))


def range_op(key: bytes, range_end: bytes = b"", **more: Any) -> pb.RequestOp:
    """Make the step of a transaction that reads."""
    request = pb.RangeRequest(key=key, range_end=range_end, **more)
    return pb.RequestOp(request_range=request)


def delete_op(key: bytes, range_end: bytes = b"", **more: Any) -> pb.RequestOp:
    """Make the step of a transaction that deletes."""
    request = pb.DeleteRangeRequest(key=key, range_end=range_end, **more)
    return pb.RequestOp(request_delete_range=request)


def txn_op(
    compare: Iterable[pb.Compare] = (),
    success: Iterable[pb.RequestOp] = (),
    failure: Iterable[pb.RequestOp] = (),
) -> pb.RequestOp:
    """Make a transaction within another one."""
    request = pb.TxnRequest(compare=compare, success=success, failure=failure)
    return pb.RequestOp(request_txn=request)


def if_version(key: bytes, version: int, **more: Any) -> pb.Compare:
    """Make the condition that a key was put so many times; 0 for a key that is not there."""
    return pb.Compare(key=key, target=pb.Compare.VERSION, version=version, **more)


Granter = Callable[..., int]
