"""Bytes in JSON: the base64 that Go reads, no more and no less, and its words for what is not."""

import binascii
import re
from typing import Final

from leasehold.server.gateway.documents import Unreadable

_FOREIGN: Final = re.compile(rb"[^A-Za-z0-9+/\r\n]")
_NOT_LINE_END: Final = re.compile(rb"[^\r\n]")
_QUANTUM: Final = 4


def decoded(text: str) -> bytes:
    """Read bytes; line ends are passed over, and there is no other alphabet."""
    try:
        octets = text.encode("ascii")
        if b"\n" in octets or b"\r" in octets:
            octets = octets.translate(None, b"\r\n")
        if len(octets) % _QUANTUM == 0:
            return binascii.a2b_base64(octets, strict_mode=True)
    except ValueError:
        pass
    raise Unreadable(f"illegal base64 data at input byte {_wrong_at(text)}")


def _wrong_at(text: str) -> int:
    """Tell which octet is wrong: for what is cut off, it is where the last four begin."""
    octets = text.encode(errors="replace")
    foreign = _FOREIGN.search(octets)
    at = len(octets) if foreign is None else foreign.start()
    before = (at - octets.count(b"\r", 0, at) - octets.count(b"\n", 0, at)) % _QUANTUM
    if foreign is None:
        return at - before
    if foreign[0] != b"=" or before < 2:
        return at
    if before == 2:
        second = _NOT_LINE_END.search(octets, at + 1)
        if second is None:
            return len(octets)
        if second[0] != b"=":
            return second.start() - 1
        at = second.start()
    behind = _NOT_LINE_END.search(octets, at + 1)
    return len(octets) if behind is None else behind.start()
