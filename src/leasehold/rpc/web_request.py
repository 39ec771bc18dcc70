"""A request on an HTTP/2 connection that is no gRPC call: it gets a page, or is told why not."""

from typing import Final, Protocol

from leasehold.rpc.answers import AnsweringStream
from leasehold.rpc.pages import Reply
from leasehold.rpc.routes import Web

_HEAD: Final = b"HEAD"


class WebCarrier(Protocol):
    """The connection that a request is on, as the request sees it."""

    def find_page(self, web: Web) -> Reply:
        """Answer a request."""
        ...

    def has_unsent(self, stream: "WebRequest", octets: int) -> None:
        """Learn that a stream has so much more to send, or its end."""
        ...


class WebRequest(AnsweringStream):
    """A request for a page; what a client sends with it is not looked at."""

    __slots__ = ("carrier", "web")

    is_grpc = False

    def __init__(
        self, carrier: WebCarrier, stream_id: int, web: Web, window: int, began: float
    ) -> None:
        self.start(stream_id, window, began)
        self.carrier = carrier
        self.web = web

    def feed(self, payload: bytes) -> None:
        """Take octets of a body."""

    def remote_ended(self) -> None:
        """Answer."""
        self.remote_done = True
        reply = self.web.refusal or self.carrier.find_page(self.web)
        self.head_fields = (
            (b":status", b"%d" % reply.status),
            (b"content-type", reply.content_type.encode()),
            (b"content-length", b"%d" % len(reply.body)),
        )
        body = b"" if self.web.method == _HEAD else reply.body
        self.unsent = bytearray(body)
        self.ending = b""
        self.carrier.has_unsent(self, len(body))

    def over(self) -> None:
        """Learn that the stream is gone."""
