"""The tables of HPACK: the static table and the Huffman code (RFC 7541, appendices A and B).

The static table is followed by further names of header fields that gRPC uses.

Theory of operation of the Huffman code. A code is a path through a binary tree; reading it bit by
bit would cost eight steps per byte. So the decoder goes byte by byte: a state is an inner node of
the tree, that is, the bits read so far of an incomplete code, and it maps each byte to the symbols
that it completes and the next state. These transitions are computed when they are first needed and
kept. The tree has 256 inner nodes, so there are never more than 256 states with 256 transitions
each, whatever peers send.

A string may end in any state that it reached by at most seven ones since its last symbol: that is
the padding. More padding, other padding, and the end-of-string code itself are errors.
"""

from typing import Final

ENTRY_OVERHEAD_BYTES: Final = 32
"""The size that RFC 7541 (4.1) and RFC 9113 (6.5.2) add to a field's name and value."""


class Field:
    """A header field. Two fields are equal only if they are the same object, on purpose.

    A peer that refers to an entry of the table again gets the same object again. So a tuple of
    fields is a dictionary key that costs no comparison of bytes. Never change a field: the table
    holds the same object.
    """

    __slots__ = ("name", "value")

    def __init__(self, name: bytes, value: bytes) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.value!r})"


STATIC_TABLE: Final = tuple(
    Field(name, value)
    for name, value in (
        (b":authority", b""),
        (b":method", b"GET"),
        (b":method", b"POST"),
        (b":path", b"/"),
        (b":path", b"/index.html"),
        (b":scheme", b"http"),
        (b":scheme", b"https"),
        (b":status", b"200"),
        (b":status", b"204"),
        (b":status", b"206"),
        (b":status", b"304"),
        (b":status", b"400"),
        (b":status", b"404"),
        (b":status", b"500"),
        (b"accept-charset", b""),
        (b"accept-encoding", b"gzip, deflate"),
        (b"accept-language", b""),
        (b"accept-ranges", b""),
        (b"accept", b""),
        (b"access-control-allow-origin", b""),
        (b"age", b""),
        (b"allow", b""),
        (b"authorization", b""),
        (b"cache-control", b""),
        (b"content-disposition", b""),
        (b"content-encoding", b""),
        (b"content-language", b""),
        (b"content-length", b""),
        (b"content-location", b""),
        (b"content-range", b""),
        (b"content-type", b""),
        (b"cookie", b""),
        (b"date", b""),
        (b"etag", b""),
        (b"expect", b""),
        (b"expires", b""),
        (b"from", b""),
        (b"host", b""),
        (b"if-match", b""),
        (b"if-modified-since", b""),
        (b"if-none-match", b""),
        (b"if-range", b""),
        (b"if-unmodified-since", b""),
        (b"last-modified", b""),
        (b"link", b""),
        (b"location", b""),
        (b"max-forwards", b""),
        (b"proxy-authenticate", b""),
        (b"proxy-authorization", b""),
        (b"range", b""),
        (b"referer", b""),
        (b"refresh", b""),
        (b"retry-after", b""),
        (b"server", b""),
        (b"set-cookie", b""),
        (b"strict-transport-security", b""),
        (b"transfer-encoding", b""),
        (b"user-agent", b""),
        (b"vary", b""),
        (b"via", b""),
        (b"www-authenticate", b""),
    )
)
"""Entry `i` of the RFC is `STATIC_TABLE[i - 1]`."""

TIMEOUT_NAME: Final = b"grpc-timeout"

_NAMES_OF_GRPC: Final = (
    TIMEOUT_NAME,
    b"te",
    b"grpc-encoding",
    b"grpc-accept-encoding",
    b"grpc-message-type",
    b"grpc-previous-rpc-attempts",
    b"grpc-tags-bin",
    b"grpc-trace-bin",
    b"hasleader",
    b"token",
)

KNOWN_NAMES: Final = {
    **{field.name: field.name for field in STATIC_TABLE},
    **{name: name for name in _NAMES_OF_GRPC},
}
"""Maps a name to the one object for it, so that such names are compared by `is`."""


MAX_PADDING_BITS: Final = 7

_SYMBOLS_BY_BITS: Final = (
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b'!"()?'),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\x00$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
    (19, b"\\\xc3\xd0"),
    (20, b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6")),
    (22, bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9")),
    (23, bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef")),
    (24, bytes.fromhex("098e9091949fabced7e1eced")),
    (25, b"\xc7\xcf\xea\xeb"),
    (26, bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff")),
    (27, bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe")),
    (28, bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9")),
    (30, b"\n\r\x16"),
)
"""The symbols that have a code of each length in bits.

The code is canonical: by length, then by symbol, each code is the one before it plus one. So the
lengths define it. The code that is left over at the end, thirty ones, is the end-of-string code.
"""


class HuffmanError(Exception):
    """A string that no encoder may send; the message describes the error."""


class _State(dict[int, "tuple[bytes, _State]"]):
    """An inner node: maps a byte to the symbols completed and the next state, on demand."""

    __slots__ = ("branches", "may_end")

    def __init__(self, may_end: bool) -> None:
        self.may_end = may_end
        self.branches: dict[str, _State | int] = {}

    def __missing__(self, byte: int) -> "tuple[bytes, _State]":
        """Compute a transition and keep it."""
        symbols = bytearray()
        state = self
        for bit in f"{byte:08b}":
            branch = state.branches.get(bit)
            if branch is None:
                raise HuffmanError("a Huffman-coded string contains the end-of-string code")
            if isinstance(branch, _State):
                state = branch
            else:
                symbols.append(branch)
                state = _START
        transition = self[byte] = (bytes(symbols), state)
        return transition


def _codes() -> tuple[str, ...]:
    """Return the code of each byte, as a string of zeros and ones."""
    codes = [""] * 256
    code = bits_before = 0
    for bits, symbols in _SYMBOLS_BY_BITS:
        code <<= bits - bits_before
        bits_before = bits
        for symbol in symbols:
            codes[symbol] = f"{code:0{bits}b}"
            code += 1
    return tuple(codes)


def _tree(codes: tuple[str, ...]) -> _State:
    """Build the inner nodes; return the root, the state in which every string starts."""
    start = _State(may_end=True)
    for symbol, code in enumerate(codes):
        state = start
        for depth, bit in enumerate(code[:-1], 1):
            branch = state.branches.get(bit)
            if branch is None:
                padding = "0" not in code[:depth] and depth <= MAX_PADDING_BITS
                branch = state.branches[bit] = _State(may_end=padding)
            assert isinstance(branch, _State), "no code is the beginning of another"
            state = branch
        state.branches[code[-1]] = symbol
    return start


_CODES: Final = _codes()
_START: Final = _tree(_CODES)


def decode_huffman(data: bytes) -> bytes:
    """Decode a whole string; raise `HuffmanError` if no encoder may send it."""
    state = _START
    parts = []
    for byte in data:
        symbols, state = state[byte]
        parts.append(symbols)
    if not state.may_end:
        raise HuffmanError("a Huffman-coded string must end with at most seven 1 bits of padding")
    return b"".join(parts)


def encode_huffman(data: bytes) -> bytes:
    """Encode a string, padded to whole bytes. Not optimized: no answer of ours needs it."""
    bits = "".join([_CODES[byte] for byte in data])
    bits += "1" * (-len(bits) % 8)
    return int("0" + bits, 2).to_bytes(len(bits) // 8, "big")
