"""The Huffman code of RFC 7541: its table, its padding, and what no encoder may send."""

import pytest
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from leasehold.http2 import hpack_tables
from leasehold.http2.hpack_tables import HuffmanError, decode_huffman, encode_huffman

END_OF_STRING = "1" * 30


def _packed(bits: str) -> bytes:
    assert len(bits) % 8 == 0
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


def _code(symbol: int) -> str:
    return f"{REQUEST_CODES[symbol]:0{REQUEST_CODES_LENGTH[symbol]}b}"


@pytest.mark.parametrize("symbol", range(256))
def test_each_code_is_that_of_the_appendix_as_the_library_has_it(symbol: int) -> None:
    code = _code(symbol)
    padded = _packed(code + "1" * (-len(code) % 8))
    assert encode_huffman(bytes([symbol])) == padded
    assert decode_huffman(padded) == bytes([symbol])


def test_the_code_left_over_is_that_of_the_end_of_a_string() -> None:
    assert _code(256) == END_OF_STRING
    assert END_OF_STRING not in hpack_tables._CODES


@pytest.mark.parametrize(
    ("text", "coded"),
    [
        (b"", ""),
        (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        (b"no-cache", "a8eb10649cbf"),
        (b"custom-key", "25a849e95ba97d7f"),
        (b"custom-value", "25a849e95bb8e8b4bf"),
        (b"302", "6402"),
        (b"private", "aec3771a4b"),
        (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        (b"https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
    ],
)
def test_the_strings_of_appendix_c(text: bytes, coded: str) -> None:
    assert encode_huffman(text) == bytes.fromhex(coded)
    assert decode_huffman(bytes.fromhex(coded)) == text


def test_every_byte_survives_in_every_position_of_a_byte() -> None:
    for shift in range(8):
        text = b"0" * shift + bytes(range(256)) * 2  # a "0" is five bits: all eight offsets occur
        assert decode_huffman(encode_huffman(text)) == text


@pytest.mark.parametrize("padding_bits", range(1, 8))
def test_up_to_seven_ones_are_padding(padding_bits: int) -> None:
    codes = {1: "0" * 5 + "00001" * 2, 2: "011001", 3: "00000", 4: "00000" * 4}
    codes |= {5: "1111111010" + "0" * 5 + "010100" * 2, 6: "00000" * 2, 7: "00000" * 5}
    bits = codes[padding_bits] + "1" * padding_bits
    assert len(bits) % 8 == 0
    assert encode_huffman(decode_huffman(_packed(bits))) == _packed(bits)


@pytest.mark.parametrize("padding_bits", [8, 11, 16, 24, 29])
def test_more_than_seven_bits_of_padding_are_refused(padding_bits: int) -> None:
    text = next(
        bits
        for bits in ("00000" * count for count in range(8))
        if (len(bits) + padding_bits) % 8 == 0
    )
    with pytest.raises(HuffmanError, match="at most seven 1 bits of padding"):
        decode_huffman(_packed(text + "1" * padding_bits))


@pytest.mark.parametrize("bits", ["00000000", "00000110", "00000101", "00000011"])
def test_padding_with_a_zero_in_it_is_refused(bits: str) -> None:
    with pytest.raises(HuffmanError, match="at most seven 1 bits of padding"):
        decode_huffman(_packed(bits))


@pytest.mark.parametrize("before", ["", "00000", "00000" * 7])
def test_the_end_of_string_code_is_refused_wherever_it_stands(before: str) -> None:
    bits = before + END_OF_STRING + "00000"
    with pytest.raises(HuffmanError, match="contains the end-of-string code"):
        decode_huffman(_packed(bits + "1" * (-len(bits) % 8)))


def test_a_string_refused_once_is_refused_again_and_spoils_no_other() -> None:
    for _ in range(2):
        with pytest.raises(HuffmanError):
            decode_huffman(b"\xff\xff\xff\xff")
    assert decode_huffman(b"\x07") == b"0"


def test_the_automaton_has_at_most_256_states_with_256_transitions_each() -> None:
    waiting, states = [hpack_tables._START], {id(hpack_tables._START): hpack_tables._START}
    while waiting:
        state = waiting.pop()
        for byte in range(256):
            try:
                _, after = state[byte]
            except HuffmanError:
                continue
            if id(after) not in states:
                states[id(after)] = after
                waiting.append(after)
    assert len(states) <= 256
    assert all(len(state) <= 256 for state in states.values())
