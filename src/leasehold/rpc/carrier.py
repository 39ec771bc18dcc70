"""What a call at the server needs of the connection that it is on."""

from typing import TYPE_CHECKING, Protocol

from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.gate import Flushable, Gate
from leasehold.rpc.host import Host
from leasehold.rpc.limits import Limits
from leasehold.rpc.receive_account import ReceiveAccount

if TYPE_CHECKING:
    from leasehold.rpc.server_call import ServerCall


class Carrier(Flushable, Protocol):
    """The connection that a call is on, as the call sees it."""

    gate: Gate
    limits: Limits
    host: Host
    account: ReceiveAccount
    held_event_bytes: int
    """Events that wait for the gate."""

    @property
    def has_event_room(self) -> bool:
        """Whether the peer takes its events; if not, listeners are told when it does."""
        ...

    def flush_soon(self) -> None:
        """Send what was put out, together with what else is in this turn of the loop."""
        ...

    def has_room_for(self, call: "ServerCall") -> bool:
        """Whether the peer takes what is sent; if not, the call is relieved when it does."""
        ...

    def drop(self, stream: "ServerCall", code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Send nothing more of a call, and tell the client so."""
        ...

    def check_room(self) -> None:
        """Refuse a call while the peer does not take the answers to those before."""
        ...

    def buffer(self, octets: int, held_bytes: int = ...) -> None:
        """Count what came in and nobody has taken; refuse it if that is too much.

        `held_bytes` is what is held of this message: a small one is not refused.
        """
        ...

    def defer(self, octets: int) -> None:
        """Count whole messages that nobody has taken, or has at last."""
        ...

    def pay_for_unpacking(self, excess_bytes: int) -> None:
        """Take the price of messages that were packed more tightly than is fair."""
        ...

    def credit(self, stream: "ServerCall") -> None:
        """Tell the client that it may send more on a stream, if it is worth a frame."""
        ...

    def answer(self, stream: "ServerCall", message: bytes) -> None:
        """Send the one answer of a call, and its end."""
        ...

    def start(self, stream: "ServerCall") -> None:
        """Send the head of an answer at once."""
        ...

    def has_unsent(self, stream: "ServerCall", octets: int) -> None:
        """Learn that a stream has so much more to send, or its end."""
        ...
