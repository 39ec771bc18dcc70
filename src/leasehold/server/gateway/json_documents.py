"""JSON documents in the body of a request: as strict as Go, and refused with its texts.

Python's parser is used because it is in C; errors are analyzed afterwards.
"""

import json
import re
from typing import Any, Final

MAX_VALUES: Final = 100_000
"""Commas, colons, brackets and escapes in one body; parsing them takes some 20 ms."""

MAX_DIGITS: Final = 20
"""Of an integer: no field has more. Parsing one of thousands takes quadratic time."""

MAX_REPAIRED_BYTES: Final = 512 * 1024
"""A body that is not UTF-8 is parsed with invalid bytes replaced, which is slow."""

_COUNTED: Final = (b",", b":", b"[", b"{", b"\\")
_END: Final = "unexpected EOF"
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# Each alternative begins with one character, or searching would take ten times as long.
_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|\{|\}|\[|\]', re.DOTALL)
_HEX_DIGITS: Final = re.compile(r"[0-9A-Fa-f]*")
_MAX_PRINTABLE: Final = 0x7E


class Unreadable(Exception):
    """Not JSON, or not the expected JSON."""


class Number(str):
    """A number that is not an integer, or a very long one, as it was written."""

    __slots__ = ()


def _no_constant(name: str) -> None:
    """Refuse constants that only Python accepts as numbers."""
    if name.startswith("-"):
        raise Unreadable(f"invalid character '{name[1]}' in numeric literal")
    raise Unreadable(f"invalid character '{name[0]}' looking for beginning of value")


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= MAX_DIGITS else Number(text)


_decoder: Final = json.JSONDecoder(
    parse_float=Number, parse_int=_integer, parse_constant=_no_constant
)


class Documents:
    """The documents of a body, one after the other."""

    def __init__(self, body: bytes) -> None:
        if len(body) > MAX_VALUES and sum(map(body.count, _COUNTED)) > MAX_VALUES:
            raise Unreadable(f"a body must have at most {MAX_VALUES} values")
        self._text = _decoded(body)
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        """Whether only whitespace is left."""
        self._at = _end_of_space(self._text, self._at)
        return self._at == len(self._text)

    def read(self) -> Any:
        """Parse the next document, which must exist."""
        try:
            value, self._at = _decoder.raw_decode(self._text, _end_of_space(self._text, self._at))
        except json.JSONDecodeError as error:
            raise Unreadable(_explain(self._text, error.msg, error.pos)) from None
        except RecursionError:
            raise Unreadable("exceeded max depth") from None
        return value


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        if len(body) > MAX_REPAIRED_BYTES:
            raise Unreadable(f"invalid UTF-8 at byte {error.start}") from None
    return body.decode(errors="replace")


def read_value(text: str) -> Any:
    """Parse the one value of a text."""
    at = _end_of_space(text, 0)
    if at == len(text):
        raise Unreadable("unexpected end of JSON input")
    documents = Documents(b"")
    documents._text = text  # noqa: SLF001
    value = documents.read()
    if not documents.is_at_end:
        rest = text[documents._at]  # noqa: SLF001
        raise Unreadable(f"invalid character {_shown(rest)} after top-level value")
    return value


def _end_of_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _explain(text: str, what: str, at: int) -> str:
    """Return Go's text for an error."""
    if what.startswith("Unterminated string"):
        return _END
    if what.startswith("Invalid control character"):
        return _wrong(text, at, "in string literal")
    if what.startswith("Invalid \\uXXXX"):
        return _explain_hex(text, at)
    if what.startswith("Invalid \\escape"):
        return _wrong(text, at + 1, "in string escape code")
    if what.startswith("Illegal trailing comma"):  # since Python 3.13
        at = _end_of_space(text, at + 1)
        what = "Expecting property" if text[at : at + 1] == "}" else "Expecting value"
    if what.startswith("Expecting property"):
        return _wrong(text, at, "looking for beginning of object key string")
    if what.startswith("Expecting ':'"):
        return _wrong(text, at, "after object key")
    if what.startswith("Expecting ','"):
        return _explain_delimiter(text, at)
    return _explain_value(text, at)


def _explain_value(text: str, at: int) -> str:
    literal = _LITERALS.get(text[at : at + 1])
    if literal is not None:
        same = 1
        while text[at + same : at + same + 1] == literal[same]:
            same += 1
        return _wrong(text, at + same, f"in literal {literal} (expecting '{literal[same]}')")
    if text[at : at + 1] == "-":
        return _wrong(text, at + 1, "in numeric literal")
    return _wrong(text, at, "looking for beginning of value")


def _explain_delimiter(text: str, at: int) -> str:
    """Explain an unexpected character after a value, which may be an incomplete number."""
    character, is_after_digit = text[at : at + 1], text[at - 1 : at].isdigit()
    if is_after_digit and character == ".":
        return _wrong(text, at + 1, "after decimal point in numeric literal")
    if is_after_digit and character in ("e", "E"):
        signs = text[at + 1 : at + 2] in ("+", "-")
        return _wrong(text, at + 1 + signs, "in exponent of numeric literal")
    within: list[str] = []
    for match in _BRACKET.finditer(text, 0, at):
        bracket = match[0]
        if bracket in ("{", "["):
            within.append(bracket)
        elif bracket in ("}", "]") and within:
            within.pop()
    is_array = within[-1:] == ["["]
    return _wrong(text, at, "after array element" if is_array else "after object key:value pair")


def _explain_hex(text: str, at: int) -> str:
    start = text.find("\\u", max(0, at - 2)) + 2
    match = _HEX_DIGITS.match(text, start)
    assert match is not None
    return _wrong(text, match.end(), "in \\u hexadecimal character escape")


def _wrong(text: str, at: int, where: str) -> str:
    if at >= len(text):
        return _END
    return f"invalid character {_shown(text[at])} {where}"


def _shown(character: str) -> str:
    """Return a character in quotes: its first byte, if it has several."""
    octet = chr(character.encode(errors="replace")[0])
    if octet == "'":
        return "'\\''"
    if octet == '"':
        return "'\"'"
    if octet.isprintable():
        return f"'{octet}'".replace("\\", "\\\\")
    return ascii(octet) if ord(octet) <= _MAX_PRINTABLE + 1 else f"'\\u{ord(octet):04x}'"
