"""What the commands for clients print: tables for people, JSON for programs, bytes as they are.

In JSON, bytes that are UTF-8 are a text under their name, such as `"value": "hello"`. Others are
in base64 under another name, `"value_base64": "/w=="`, so nobody takes one for the other.
"""

import base64
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from leasehold.cli.settings.shown import one_line

MAX_SHOWN_CHARS: Final = 200
"""Of a value in a table; all of it is in JSON, and with --print-value-only."""

_BASE64: Final = "_base64"
_GAP: Final = "  "


class OutputFailedError(Exception):
    """Standard output cannot be written to; the text says why."""


def emit(octets: bytes) -> None:
    """Write bytes as they are. `BrokenPipeError` if nobody reads any more."""
    if sys.stdout is None:
        raise OutputFailedError("cannot print: standard output is closed")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(octets)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputFailedError(f"cannot write to standard output: {why}") from None


def emit_lines(lines: Iterable[str]) -> None:
    """Write lines for people: what their terminal cannot show is written in another way."""
    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
    emit("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace"))


def emit_json(*documents: object) -> None:
    """Write each document as a line, in UTF-8."""
    emit("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents).encode())


def is_terminal() -> bool:
    """Whether a person looks at what is printed."""
    return sys.stdout is not None and sys.stdout.isatty()


def named(name: str, octets: bytes) -> dict[str, str]:
    """Give bytes for JSON, under their name if they are text."""
    try:
        return {name: octets.decode()}
    except UnicodeDecodeError:
        return {name + _BASE64: base64.b64encode(octets).decode()}


def number(value: float) -> float:
    """Give a number for JSON, without a fraction if it has none."""
    return int(value) if value == int(value) else value


def shown_octets(octets: bytes, most: int = MAX_SHOWN_CHARS) -> str:
    """Write a key or a value for people: in a line, not all of it if it is long."""
    from leasehold.cli.reporting import size  # noqa: PLC0415

    text = one_line(octets[: 4 * most].decode(errors="backslashreplace"))
    return text if len(text) <= most else f"{text[:most]}... ({size(len(octets))})"


def raw_or_shown(octets: bytes) -> bytes:
    """Give a line with what it is, for programs; for people such that it harms no terminal."""
    if is_terminal():
        octets = one_line(octets.decode(errors="backslashreplace")).encode()
    return octets + b"\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Write a table; the last column is as wide as it happens to be."""
    cells = [list(heads), *([_cell(each) for each in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads) - 1)]
    return [_row(row, widths) for row in cells]


def fixed_row(cells: Sequence[Any], widths: Sequence[int]) -> str:
    """Write a row of a table that is printed before all of it is known."""
    return _row([_cell(each) for each in cells], widths)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    *others, last = cells
    padded = [f"{cell:<{width}}" for cell, width in zip(others, widths, strict=True)]
    return _GAP.join([*padded, last]).rstrip()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text or "-"


def facts(pairs: Iterable[tuple[str, Any]]) -> list[str]:
    """Write names with what is known of each, one below the other."""
    known = [(name, _cell(value)) for name, value in pairs]
    width = max(len(name) for name, _ in known)
    return [f"{name:<{width}}{_GAP}{value}" for name, value in known]
