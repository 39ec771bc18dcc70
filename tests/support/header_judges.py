"""References for encoded header blocks: the decoder of the library `hpack`, and our own."""

import hpack
from hpack.struct import HeaderTuple

from leasehold.http2.header_encoder import Fields
from leasehold.http2.hpack import HeaderDecoder

SECRETS = (b"authorization", b"token", b"cookie", b"proxy-authorization")
MAX_LIST_BYTES = 1 << 20


class Judges:
    """Two decoders that read every block, in the order in which they were encoded."""

    def __init__(self) -> None:
        self.theirs = hpack.Decoder(max_header_list_size=MAX_LIST_BYTES)
        self.ours = HeaderDecoder(max_list_bytes=MAX_LIST_BYTES)

    def read(self, block: bytes) -> Fields:
        """Return the fields, on which both must agree."""
        theirs = tuple((bytes(name), bytes(value)) for name, value in self.raw(block))
        ours = tuple((field.name, field.value) for field in self.ours.decode(block))
        assert ours == theirs
        return theirs

    def raw(self, block: bytes) -> list[HeaderTuple]:
        return list(self.theirs.decode(block, raw=True))
