"""The context of a call: what its interceptor and its handler can read besides the message.

A call has the same context whether it was made with gRPC or as JSON over HTTP.

An interceptor is a function that is called with the context of every call, before the handler and
before the message is read. It refuses a call by raising an error: `RpcError` with its status, or an
error of Leasehold. `routes.intercept` installs it in the methods of a server, which gRPC and the
JSON gateway share. So a check on every call is installed in one place.

A call has a cost for this only if its method has an interceptor, or a handler that reads the
context. No context is made for other calls, and their header fields are not kept.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from leasehold.basics.sockets import peer_of
from leasehold.grpc.metadata import Metadata


class Peer:
    """The client at the other end of a connection."""

    __slots__ = ("_name", "_transport")

    def __init__(self, transport: asyncio.BaseTransport | None = None) -> None:
        self._transport = transport
        self._name: object = None if transport is None else transport.get_extra_info("peername")

    @property
    def address(self) -> str:
        """The address of the client, such as `127.0.0.1:40312`, or `a Unix socket`."""
        return peer_of(self._name)

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, as `ssl.SSLSocket.getpeercert` returns it.

        None without TLS, and if the client has sent none. It was verified if there is one.
        """
        if self._transport is None:
            return None
        return self._transport.get_extra_info("peercert") or None


class CallContext:
    """The circumstances of one call."""

    __slots__ = ("began", "metadata", "path", "peer", "timeout_s")

    def __init__(
        self, path: str, metadata: Metadata, peer: Peer, timeout_s: float | None, began: float
    ) -> None:
        self.path = path
        """The method: `/package.Service/Method`, also for a call as JSON."""
        self.metadata = metadata
        """The metadata of the request; of a JSON request, the fields that are passed on."""
        self.peer = peer
        self.timeout_s = timeout_s
        """How long the call may take, as the client sent it; None without a limit."""
        self.began = began
        """When the request was received, by `time.monotonic`."""

    @property
    def deadline(self) -> float | None:
        """When the transport ends the call, by `time.monotonic`; None without a limit."""
        return None if self.timeout_s is None else self.began + self.timeout_s


Interceptor = Callable[[CallContext], None]
"""Called before the handler of every call; raises an error to refuse the call."""
