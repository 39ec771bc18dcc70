"""On which line of a TOML file each key is.

`tomllib` does not say. But a statement that ends with a line can be read by itself, under the
header of its table: so lines are put together until they can be read, and whatever keys come out
begin on the first of them. The text must have been read as a whole before: what is wrong with it is
not seen here.

A statement of many lines is read once for each of them. That has an end: lines behind it are not
known.
"""

import tomllib
from collections.abc import Iterator
from typing import Any, Final

KeyPath = tuple[str, ...]

MAX_DEPTH: Final = 3
"""Of the keys that are looked for: policy.NAME.min."""

MAX_READ_CHARS: Final = 2 * 1024 * 1024
"""All that is read together: enough for a file of the largest size with a statement a line."""


def lines_of(text: str) -> dict[KeyPath, int]:
    """Find the line, from 1 on, of each key and each table, by its path; not of all: see above."""
    found: dict[KeyPath, int] = {}
    header, statement, begin, read_chars = "", "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begin = number
        statement += line + "\n"
        if line.lstrip().startswith("[") and begin == number:
            header = statement
        read_chars += len(header) + len(statement)
        if read_chars > MAX_READ_CHARS:
            break
        read = _read(statement if statement is header else header + statement)
        if read is None:
            continue
        for path in _paths(read):
            found.setdefault(path, begin)
        statement = ""
    return found


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _paths(table: dict[str, Any], parent: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in table.items():
        path = (*parent, key)
        yield path
        if len(path) == MAX_DEPTH:
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from _paths(each, path)
