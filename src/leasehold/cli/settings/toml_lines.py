"""On which line of a TOML file each key is.

`tomllib` does not say. But a statement that ends with a line can be read by itself, under the
header of its table: so lines are put together until they can be read, and whatever keys come out
begin on the first of them. The text must have been read as a whole before: what is wrong with it is
not seen here.
"""

import tomllib
from collections.abc import Iterator
from typing import Any

KeyPath = tuple[str, ...]


def lines_of(text: str) -> dict[KeyPath, int]:
    """Find the line, from 1 on, of each key and each table, by its path."""
    found: dict[KeyPath, int] = {}
    header, statement, begin = "", "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not statement:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begin = number
        statement += line + "\n"
        if line.lstrip().startswith("[") and begin == number:
            header = statement
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
    except tomllib.TOMLDecodeError:
        return None


def _paths(table: dict[str, Any], parent: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in table.items():
        path = (*parent, key)
        yield path
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from _paths(each, path)
