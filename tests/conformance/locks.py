"""Calls of etcd's Lock and Election services for conformance tests."""

import time
from collections.abc import Callable
from typing import Any, Final, Generic, Self, TypeVar

import grpc

from leasehold.wire import election_pb2 as epb
from leasehold.wire import lock_pb2 as lpb
from tests.conformance.client import CALL_S, Client, Response, prefix_end

R = TypeVar("R", bound=Response)

OWN_CONNECTION: Final = ("grpc.use_local_subchannel_pool", 1)
"""Without it, all channels to one server share a connection."""

POLL_S: Final = 0.01
EXPIRED: Final = "mutex: session is expired"
NO_LEADER: Final = "election: no leader"
NOT_LEADER: Final = "election: not leader"


class Pending(Generic[R]):
    """A call under way."""

    def __init__(self, client: Client, call: Any, response_type: type[R]) -> None:
        self._client = client
        self._call = call
        self._response_type = response_type

    @property
    def is_done(self) -> bool:
        """Whether it has come to an end."""
        return bool(self._call.done())

    def answer(self) -> R:
        """Wait for the answer."""
        return self._client.checked(self._response_type, self._call.result())

    def cancel(self) -> None:
        """Give up."""
        self._call.cancel()


class Locks:
    """Locks and elections, on the connection of a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _unary(self, path: str, request: Any, response_type: type[R]) -> R:
        return self.client.checked(
            response_type, self.client.raw(path, request.SerializeToString())
        )

    def _begin(
        self, path: str, request: Any, response_type: type[R], timeout_s: float
    ) -> Pending[R]:
        call = self.client.begin(path, request.SerializeToString(), timeout_s)
        return Pending(self.client, call, response_type)

    def lock(self, name: bytes, lease: int = 0) -> lpb.LockResponse:
        """Lock at once."""
        return self.begin_lock(name, lease).answer()

    def begin_lock(
        self, name: bytes, lease: int = 0, timeout_s: float = CALL_S
    ) -> Pending[lpb.LockResponse]:
        """Begin to wait for a lock."""
        request = lpb.LockRequest(name=name, lease=lease)
        return self._begin("/v3lockpb.Lock/Lock", request, lpb.LockResponse, timeout_s)

    def unlock(self, key: bytes) -> lpb.UnlockResponse:
        """Unlock."""
        return self._unary("/v3lockpb.Lock/Unlock", lpb.UnlockRequest(key=key), lpb.UnlockResponse)

    def campaign(self, name: bytes, lease: int = 0, value: bytes = b"") -> epb.CampaignResponse:
        """Lead at once."""
        return self.begin_campaign(name, lease, value).answer()

    def begin_campaign(
        self, name: bytes, lease: int = 0, value: bytes = b"", timeout_s: float = CALL_S
    ) -> Pending[epb.CampaignResponse]:
        """Begin to wait until one leads."""
        request = epb.CampaignRequest(name=name, lease=lease, value=value)
        path = "/v3electionpb.Election/Campaign"
        return self._begin(path, request, epb.CampaignResponse, timeout_s)

    def proclaim(self, leader: epb.LeaderKey | None, value: bytes) -> epb.ProclaimResponse:
        """Say something else."""
        request = epb.ProclaimRequest(leader=leader, value=value)
        return self._unary("/v3electionpb.Election/Proclaim", request, epb.ProclaimResponse)

    def leader(self, name: bytes) -> epb.LeaderResponse:
        """Ask who leads."""
        request = epb.LeaderRequest(name=name)
        return self._unary("/v3electionpb.Election/Leader", request, epb.LeaderResponse)

    def resign(self, leader: epb.LeaderKey | None) -> epb.ResignResponse:
        """Lead no longer."""
        request = epb.ResignRequest(leader=leader)
        return self._unary("/v3electionpb.Election/Resign", request, epb.ResignResponse)

    def observe(self, name: bytes) -> "Observing":
        """Look on."""
        return Observing(self.client, name)

    def waiting(self, name: bytes, count: int) -> list[Any]:
        """Wait until so many keys stand in line, and give them, the oldest one first."""
        until(lambda: len(self._line(name)) == count, f"{count} keys under {name!r}")
        return self._line(name)

    def is_waiting(self, call: Pending[Any], name: bytes, count: int) -> bool:
        """Wait until so many keys stand in line; False if the call has ended before that."""
        is_seen = False

        def is_known() -> bool:
            nonlocal is_seen
            is_seen = len(self._line(name)) == count
            return is_seen or call.is_done

        until(is_known, f"{count} keys under {name!r}")
        return is_seen

    def _line(self, name: bytes) -> list[Any]:
        prefix = name + b"/"
        found = self.client.range(
            prefix, prefix_end(prefix), sort_target="CREATE", sort_order="ASCEND"
        )
        return list(found.kvs)


class Observing:
    """A stream of who leads."""

    def __init__(self, client: Client, name: bytes) -> None:
        self._client = client
        body = epb.LeaderRequest(name=name).SerializeToString()
        self._call = client.begin_stream("/v3electionpb.Election/Observe", body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel()

    def next(self) -> tuple[int, bytes, bytes]:
        """Wait for the next: the header's revision, the leader's key, and what it says."""
        answer = self._client.checked(epb.LeaderResponse, next(self._call))
        return answer.header.revision, answer.kv.key, answer.kv.value


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    give_up_at = time.monotonic() + CALL_S
    while not condition():
        assert time.monotonic() < give_up_at, f"no {what}"
        time.sleep(POLL_S)


def code_of(pending: Pending[Any]) -> tuple[grpc.StatusCode, str | None]:
    """Wait for a call to fail, and say how."""
    try:
        answer = pending.answer()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"it was answered: {answer}")
