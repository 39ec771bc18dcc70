"""Every limit of a connection, in one place: its name, its default, and why.

Whoever goes over a limit that concerns one call loses the call; over one that concerns the
connection, the connection, with `ENHANCE_YOUR_CALM` and one line in the log. Nobody else notices.

Frames that cost something and bring nothing (pings, settings, resets, empty frames) are paid for
out of a budget (see `purse`): a burst is free, and so is a slow trickle.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from leasehold.rpc.hpack import MAX_HEADER_LIST_BYTES

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class Rate(NamedTuple):
    """So many at once, and so many a second ever after."""

    burst: int
    per_s: float


_TAKEN_BACK: Final = Rate(2048, 100.0)
_RARE: Final = Rate(100, 10.0)
_CHEAP: Final = Rate(10_000, 1000.0)
_UNPACKED: Final = Rate(4 * MIB, 4.0 * MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one connection."""

    max_streams: int = 1024
    """Calls under way; more are refused, and may be tried again."""
    max_header_list_bytes: int = MAX_HEADER_LIST_BYTES
    """The fields of a request, decoded; a longer list loses the call."""
    max_block_bytes: int = 64 * KIB
    """The fields of a request, encoded, over all CONTINUATION frames."""
    max_continuations: int = 256
    """CONTINUATION frames for one block: at 16 KiB each four would do, but who knows."""
    max_message_bytes: int = 2 * MIB
    """A message that comes in, plain; etcd has the same limit."""
    max_buffered_bytes: int = 32 * MIB
    """Messages that are not complete or that no handler has taken, and large heads that are kept,
    on all streams. All connections of a server together may have
    `rpc.receive_account.SHARES` times as much."""
    message_s: float = 30.0
    """How long a message may take to arrive completely, with the time that it needs at
    `min_bytes_per_s` on top; then its call is ended. The first byte of a unary call's message, or
    of the body of a web request, must arrive within this time after the headers. A header block
    must be complete within this time, or the connection is closed."""
    min_bytes_per_s: int = 16 * KIB
    resets: Rate = _TAKEN_BACK
    """Calls that the peer takes back before there is an answer, or makes us take back: twice all
    that it may have."""
    refusals: Rate = _CHEAP
    """Calls beyond `max_streams`: a client may not have heard of that limit yet."""
    settings: Rate = _RARE
    pings: Rate = _RARE
    """Pings while nothing is said to the peer: gRPC's clients answer each piece of data with one,
    to learn how far away we are."""
    empty_data: Rate = _RARE
    """DATA frames that have nothing and end nothing."""
    idle_frames: Rate = _CHEAP
    """Everything else that begins no call and carries no message, as far as there is no reason."""
    unpacked: Rate = _UNPACKED
    """Octets beyond a fair ratio that packed messages are unpacked to."""
    max_unsent_bytes: int = 16 * MIB
    """Output that waits for the peer; beyond it calls are refused, and so is a peer that goes on
    asking to be told things. A single answer may be larger."""
    max_event_bytes: int = 4 * MIB
    """Events that wait for the peer or for the disk; beyond it there is no room for more until half
    of them are gone. A single one may be larger."""
    first_bytes_s: float = 10.0
    """From the connection to the end of its greeting; and for a request of HTTP/1.1 to be there."""
    idle_s: float = 3600.0
    """How long a connection without any call is kept."""
    uncalled_s: float = 60.0
    """The same for a connection on which no call was ever made."""
    stall_s: float = 60.0
    """How long a peer may leave output untaken that it has asked for."""
    min_taken_bytes: int = 64 * KIB
    """How much it must take of it in that time."""
    ping_after_s: float = 60.0
    """After so long without a word from a peer that has calls it is asked whether it is there."""
    ping_timeout_s: float = 20.0
    """How long it may take to say so."""
