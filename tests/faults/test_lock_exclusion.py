"""One owner at a time: real clients that lock, give up and die, and a server that is killed.

A client that is granted the lock must have the oldest key under the name at that revision, which is
checked against the events of a watch. While the lease of an owner is running and the owner has not
begun to release, no other client may be granted the lock, which is checked by the clients' clock.

On a starved machine a lease can expire before its lock is granted or released. That is correct if
the TTL has passed since the client sent the grant, and a defect if it has not.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from leasehold.wire import lock_pb2 as lpb
from leasehold.wire import rpc_pb2 as pb
from tests.faults.server_process import ServerProcess

CLIENTS: Final = 6
ROUNDS: Final = 10
EXPIRES: Final = 0.05
"""How often a client dies while it has the lock."""

KILLS: Final = 3
NAME: Final = b"lock"
CALL_S: Final = 30.0
LONG_S: Final = 60
SHORT_S: Final = 2
EXPIRED: Final = "mutex: session is expired"
OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1),)


class World:
    """The server of the moment, and who has the lock as far as the clients know."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = ServerProcess(directory).wait_until_ready()
        self._guard = threading.Lock()
        self.owner: str | None = None
        self._owned_until = 0.0
        """The earliest time at which the owner's lease may expire."""
        self.overlaps: list[str] = []
        self.answers: list[tuple[int, bytes]] = []
        """Revisions and keys of all who were told that they have the lock."""
        self.done = 0

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self._server.kill()
        self._server = ServerProcess(self._directory).wait_until_ready()

    def stop(self) -> None:
        """End the server."""
        self._server.kill()

    @property
    def endpoint(self) -> str:
        """Where the server is now."""
        return self._server.endpoint

    def acquired(self, who: str, answer: lpb.LockResponse, until: float) -> None:
        """Record that a client was granted the lock, under a lease that runs until then."""
        with self._guard:
            self.answers.append((answer.header.revision, answer.key))
            if self.owner is not None and time.monotonic() < self._owned_until:
                self.overlaps.append(f"{who} has it beside {self.owner}")
            self.owner = who
            self._owned_until = until
            self.done += 1

    def lets_go(self, who: str) -> None:
        """Note that a client begins to let go, whatever becomes of it."""
        with self._guard:
            if self.owner == who:
                self.owner = None


class Contender:
    """A client that wants the lock again and again."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._who = f"client {number}"
        self._random = random.Random(number)
        self._lease = 0
        self._lease_until = 0.0
        """The earliest time at which the lease may expire: its TTL from the send of the grant."""

    def run(self) -> None:
        """Have it several times."""
        rounds = 0
        while rounds < ROUNDS and not self._world.overlaps:
            try:
                with self._channel() as channel:
                    rounds += self._once(channel)
            except grpc.RpcError as error:
                if self._is_expiry(error):
                    self._lease = 0
                elif error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                self._clean_up()

    def _is_expiry(self, error: grpc.RpcError) -> bool:
        """Whether this says that the lease has expired, after its whole TTL."""
        is_gone = error.code() == grpc.StatusCode.NOT_FOUND or error.details() == EXPIRED
        return is_gone and time.monotonic() >= self._lease_until

    def _clean_up(self) -> None:
        """Revoke the lease after the server was killed: the outcome of the call is unknown."""
        give_up_at = time.monotonic() + CALL_S
        while self._lease:
            try:
                with self._channel() as channel:
                    _revoke(channel, self._lease)
                self._lease = 0
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    self._lease = 0
                assert time.monotonic() < give_up_at, "the server does not come again"
                time.sleep(0.01)

    @contextmanager
    def _channel(self) -> Iterator[grpc.Channel]:
        channel = grpc.insecure_channel(self._world.endpoint, OPTIONS)
        try:
            yield channel
        finally:
            channel.close()

    def _once(self, channel: grpc.Channel) -> bool:
        """Lock and let go, in one of many ways; True if it had the lock."""
        way = self._random.choice(["unlock", "unlock", "revoke", "give up"])
        if self._random.random() < EXPIRES:
            way = "expire"
        ttl_s = SHORT_S if way == "expire" else LONG_S
        self._lease_until = time.monotonic() + ttl_s
        lease = self._lease = _grant(channel, ttl_s)
        request = lpb.LockRequest(name=NAME, lease=lease)
        call: Any = channel.unary_unary("/v3lockpb.Lock/Lock", bytes, bytes).future(
            request.SerializeToString(), timeout=CALL_S
        )
        if way == "give up":
            try:
                call.result(timeout=self._random.random() / 20)
            except grpc.FutureTimeoutError:
                call.cancel()
            _revoke(channel, lease)  # it may have had it after all
            return False
        answer = lpb.LockResponse.FromString(call.result())
        if way == "expire":
            self._world.answers.append((answer.header.revision, answer.key))
            self._lease = 0
            return True  # it dies here, and the lease soon after
        self._world.acquired(self._who, answer, self._lease_until)
        time.sleep(self._random.random() / 200)
        self._world.lets_go(self._who)
        if way == "revoke":
            _revoke(channel, lease)
        else:
            _unlock(channel, answer.key)
        return True


def _call(channel: grpc.Channel, path: str, request: Any) -> bytes:
    answer: bytes = channel.unary_unary(path, bytes, bytes)(
        request.SerializeToString(), timeout=CALL_S
    )
    return answer


def _grant(channel: grpc.Channel, ttl_s: int) -> int:
    answer = _call(channel, "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=ttl_s))
    return pb.LeaseGrantResponse.FromString(answer).ID


def _revoke(channel: grpc.Channel, lease: int) -> None:
    _call(channel, "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease))


def _unlock(channel: grpc.Channel, key: bytes) -> None:
    _call(channel, "/v3lockpb.Lock/Unlock", lpb.UnlockRequest(key=key))


def _line_at_each_revision(endpoint: str, until: int) -> dict[int, dict[bytes, int]]:
    """Give the keys in line, with their create revisions, as a watch tells it from the start."""
    create = pb.WatchCreateRequest(key=NAME + b"/", range_end=NAME + b"0", start_revision=1)
    with grpc.insecure_channel(endpoint, OPTIONS) as channel:
        watch = channel.stream_stream("/etcdserverpb.Watch/Watch", bytes, bytes)
        stop = threading.Event()

        def requests() -> Iterator[bytes]:
            yield pb.WatchRequest(create_request=create).SerializeToString()
            stop.wait(CALL_S)

        now: dict[bytes, int] = {}
        lines: dict[int, dict[bytes, int]] = {}
        call: Any = watch(requests(), timeout=CALL_S)
        for message in call:
            for event in pb.WatchResponse.FromString(message).events:
                if event.type == event.DELETE:
                    del now[event.kv.key]
                else:
                    now[event.kv.key] = event.kv.create_revision
                lines[event.kv.mod_revision] = dict(now)
            if lines and max(lines) >= until:
                break
        stop.set()
        call.cancel()
    return lines


def test_there_is_one_owner_at_a_time_whoever_dies(tmp_path: Path) -> None:
    world = World(tmp_path)
    threads = [
        threading.Thread(target=Contender(world, number).run, daemon=True)
        for number in range(CLIENTS)
    ]
    try:
        for thread in threads:
            thread.start()
        for kill in range(KILLS):
            give_up_at = time.monotonic() + CALL_S
            while world.done < (kill + 1) * CLIENTS and time.monotonic() < give_up_at:
                time.sleep(0.01)
            world.restart()
        for thread in threads:
            thread.join(2 * CALL_S)
            assert not thread.is_alive(), f"somebody waits in vain; {world.done} had the lock"
        assert world.overlaps == []
        lines = _line_at_each_revision(world.endpoint, max(r for r, _ in world.answers))
    finally:
        world.stop()
    for revision, key in world.answers:
        line = lines[max(each for each in lines if each <= revision)]
        assert min(line, key=line.__getitem__) == key, f"at {revision} this one was not the oldest"
