"""What a call costs the server's process, without sockets and without a disk.

    python -m benchmarks.request_path

Bytes as a Go client sends them go into a connection, 32 calls at a time, and a batch is called
durable after ten such pieces. So this is header decoding, HTTP/2, gRPC, services and store, and
nothing else. The least of many rounds is shown: what else the machine does makes a round slower,
never faster. For comparing two versions of the code, run both in turn.
"""

import asyncio
import gc
from collections.abc import Iterator
from itertools import repeat
from random import Random
from time import process_time
from typing import Final

from benchmarks.etcd import messages
from benchmarks.etcd.script import (
    DATA,
    HeaderWriter,
    Script,
    constant_timeout,
    frame,
    timeouts,
    with_prefix,
)
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.routes import Methods
from leasehold.grpc.server_connection import TABLE_BYTES, ServerConnection
from leasehold.http2 import frames
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Grant, Put
from leasehold.server.etcd.kv import KVService
from leasehold.server.etcd.lease import LeaseService
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store.runtime import Runtime

CALLS: Final = 640
CALLS_PER_PIECE: Final = 32
PIECES_IN_A_BATCH: Final = 10
ROUNDS: Final = 60
KEY: Final = b"foo"
LEASED_KEY: Final = b"bar"
VALUE: Final = b"x" * 32
LEASE: Final = 0x2D9E_0A5B_36C1_4F77  # as long as those that servers choose
TTL_S: Final = 3600
WIDE_WINDOW: Final = 1 << 30

WORKLOADS: Final = {
    "Put": ("/etcdserverpb.KV/Put", messages.put_request(KEY, VALUE)),
    "Put with a lease": (
        "/etcdserverpb.KV/Put",
        messages.put_request(LEASED_KEY, VALUE, LEASE),
    ),
    "Txn: compare and put": (
        "/etcdserverpb.KV/Txn",
        messages.compare_and_put_request(KEY, VALUE, VALUE),
    ),
    "Range of one key": ("/etcdserverpb.KV/Range", messages.range_request(KEY)),
    "LeaseGrant": ("/etcdserverpb.Lease/LeaseGrant", messages.lease_grant_request(TTL_S)),
    "LeaseGrant for 60 s": (  # the only form that is parsed without protobuf
        "/etcdserverpb.Lease/LeaseGrant",
        messages.lease_grant_request(60),
    ),
    "KeepAlive, one-shot": (
        "/etcdserverpb.Lease/LeaseKeepAlive",
        messages.lease_request(LEASE),
    ),
}


class Server:
    """Everything of a server but sockets and disk."""

    def __init__(self) -> None:
        self.runtime = Runtime(None)
        self.store = self.runtime.store
        self.store.start()
        self.gate = DurabilityGate()
        self.store.on_durable = self.gate.release
        context = ServiceContext(self.runtime, self.gate, Identity(1 << 63, 1 << 62, 1))
        self.methods: Methods = {**KVService(context).methods(), **LeaseService(context).methods()}
        self.store.apply(Grant(LEASE, float(TTL_S)))
        self.store.apply(Put(KEY, VALUE))
        self.commit()

    def commit(self) -> None:
        """Call durable what there is."""
        batch = self.store.take_batch()
        if batch is not None:
            b"".join(batch.changes)  # what a row of the journal is made of
            self.store.committed()

    def connect(self) -> ServerConnection:
        """Begin a connection whose client has wide windows."""
        connection = ServerConnection(self.methods, self.gate, lambda _: None)
        connection.receive(
            frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: WIDE_WINDOW})
            + frames.window_update(0, WIDE_WINDOW)
        )
        return connection

    def round_s(self, connection: ServerConnection, pieces: list[bytes]) -> float:
        """Answer everything; return the processor time it took."""
        began = process_time()
        for number, piece in enumerate(pieces, 1):
            self.store.leases.enter()
            connection.receive(piece)
            if number % PIECES_IN_A_BATCH == 0:
                self.commit()
        return process_time() - began


def call_pieces(path: str, body: bytes, *, changing: bool) -> list[bytes]:
    """The calls of one connection."""
    values = timeouts(Random(0)) if changing else constant_timeout()
    headers = HeaderWriter("127.0.0.1:2379", values, TABLE_BYTES)
    script = Script(headers, path, repeat(body, CALLS))
    starts = range(0, CALLS, CALLS_PER_PIECE)
    return [
        bytes(script.content[script.starts[at] : script.starts[at + CALLS_PER_PIECE]])
        for at in starts
    ]


def stream_pieces() -> tuple[bytes, list[bytes]]:
    """What opens a stream of renewals, and the renewals on it."""
    path, body = WORKLOADS["KeepAlive, one-shot"]
    headers = HeaderWriter("127.0.0.1:2379", constant_timeout(), TABLE_BYTES)
    opening = headers.next_frame(1, path)
    piece = frame(DATA, 0, 1, with_prefix(body)) * CALLS_PER_PIECE
    return opening, [piece] * (CALLS // CALLS_PER_PIECE)


def costs_us(server: Server) -> Iterator[tuple[str, float]]:
    """What each kind of call costs, at best."""
    for name, (path, body) in WORKLOADS.items():
        for changing in (False, True):
            pieces = call_pieces(path, body, changing=changing)
            rounds = [server.round_s(server.connect(), pieces) for _ in range(ROUNDS)]
            label = f"{name}, {'changing' if changing else 'constant'} headers"
            yield label, min(rounds) / CALLS * 1e6
    opening, pieces = stream_pieces()
    rounds = []
    for _ in range(ROUNDS):
        connection = server.connect()
        connection.receive(opening)
        rounds.append(server.round_s(connection, pieces))
    yield "KeepAlive on a long stream", min(rounds) / CALLS * 1e6


async def main() -> None:
    """Measure, and print."""
    server = Server()
    gc.collect()
    gc.freeze()
    for label, cost_us in costs_us(server):
        print(f"{label:40}{cost_us:6.2f} µs")


if __name__ == "__main__":
    asyncio.run(main())
