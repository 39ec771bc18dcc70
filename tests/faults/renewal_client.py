"""A client that renews a lease on one long stream and adds next to no time of its own.

Run in a process of its own, so that nobody else holds its interpreter up:

    python renewal_client.py HOST:PORT LEASE COUNT INTERVAL_S

Renews at fixed times, whether or not the last answer has come: a server that stands still for a
while keeps everybody waiting who asks meanwhile, not only the first. Writes for each renewal, in a
line of its own, the milliseconds from the sending to the answer.
"""

import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived

from leasehold.wire import rpc_pb2 as pb

RECEIVE_BYTES: Final = 65536
ANSWER_S: Final = 20.0
GRPC_HEADER: Final = struct.Struct(">BI")
HEADERS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/etcdserverpb.Lease/LeaseKeepAlive"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)


class RenewalStream:
    """One stream of renewals on a connection of its own."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._http2 = H2Connection(H2Configuration(client_side=True))
        self._http2.initiate_connection()
        self._stream = self._http2.get_next_available_stream_id()
        self._http2.send_headers(self._stream, HEADERS)
        self._received = b""

    def send(self, lease: int) -> None:
        """Ask for a renewal."""
        request = pb.LeaseKeepAliveRequest(ID=lease).SerializeToString()
        self._http2.send_data(self._stream, GRPC_HEADER.pack(0, len(request)) + request)
        self._socket.sendall(self._http2.data_to_send())

    def receive(self, wait_s: float) -> list[int]:
        """Wait for answers, so long at most; give the times to live in them."""
        readable, _, _ = select.select([self._socket], [], [], wait_s)
        if readable:
            self._receive()
        return [pb.LeaseKeepAliveResponse.FromString(each).TTL for each in self._messages()]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _messages(self) -> Iterator[bytes]:
        while len(self._received) >= GRPC_HEADER.size:
            _, length = GRPC_HEADER.unpack_from(self._received)
            end = GRPC_HEADER.size + length
            if len(self._received) < end:
                return
            message, self._received = self._received[GRPC_HEADER.size : end], self._received[end:]
            yield message

    def _receive(self) -> None:
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server has closed the connection")
        for event in self._http2.receive_data(data):
            if isinstance(event, DataReceived):
                self._received += event.data
                self._http2.acknowledge_received_data(event.flow_controlled_length, self._stream)


def measure(stream: RenewalStream, lease: int, count: int, interval_s: float) -> list[float]:
    """Renew so many times; give the milliseconds that each took."""
    sent_at: list[float] = []
    took_ms: list[float] = []
    began = time.perf_counter()
    while len(took_ms) < count:
        now = time.perf_counter()
        due = began + len(sent_at) * interval_s
        if len(sent_at) < count and now >= due:
            sent_at.append(now)
            stream.send(lease)
            continue
        for ttl_s in stream.receive(due - now if len(sent_at) < count else ANSWER_S):
            assert ttl_s > 0, "the lease has ended"
            took_ms.append((time.perf_counter() - sent_at[len(took_ms)]) * 1000.0)
    return took_ms


def main(endpoint: str, lease: int, count: int, interval_s: float) -> None:
    """Renew, and write how long each renewal took."""
    stream = RenewalStream(endpoint)
    measure(stream, lease, 1, interval_s)  # the first one waits for the connection
    for took_ms in measure(stream, lease, count, interval_s):
        sys.stdout.write(f"{took_ms:.3f}\n")
    stream.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
