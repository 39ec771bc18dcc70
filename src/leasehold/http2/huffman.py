"""The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B), both ways.

Theory of operation. A code is a path through a binary tree; reading it bit by bit would cost eight
steps per byte. So the decoder goes byte by byte: a state is an inner node of the tree, that is, the
bits read so far of an incomplete code, and it maps each byte to the symbols that it completes and
the next state. These transitions are computed when they are first needed and kept. The tree has 256
inner nodes, so there are never more than 256 states with 256 transitions each, whatever peers send.

A string may end in any state that it reached by at most seven ones since its last symbol: that is
the padding. More padding, other padding, and the end-of-string code itself are errors.
"""

from typing import Final

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
        raise HuffmanError("a Huffman-coded string does not end in at most seven ones of padding")
    return b"".join(parts)


def encode_huffman(data: bytes) -> bytes:
    """Encode a string, padded to whole bytes. Not optimized: no answer of ours needs it."""
    bits = "".join([_CODES[byte] for byte in data])
    bits += "1" * (-len(bits) % 8)
    return int("0" + bits, 2).to_bytes(len(bits) // 8, "big")
