"""Settings from a TOML file. All errors in it are reported together, with line numbers."""

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leasehold.cli.settings.error_texts import (
    hint,
    is_shown,
    nearest,
    one_line,
    shown,
    shown_name,
    shown_path,
)
from leasehold.cli.settings.given_values import (
    FAILED,
    MAX_VALUE_CHARS,
    Given,
    Layer,
    Mistake,
    check_number,
)
from leasehold.cli.settings.options import BY_NAME, CREDENTIALS, Option
from leasehold.cli.settings.value_types import (
    FIELDS,
    FILE,
    check_name,
    endpoints,
    policy_of,
    term_ms,
)
from leasehold.server.settings import RemoteEndpoints

KeyPath = tuple[str, ...]

MAX_FILE_BYTES: Final = 1024 * 1024

MAX_DIGITS: Final = 100
"""Maximum digits of a number. Python itself parses some thousands, which takes long."""

MAX_DEPTH: Final = 3
"""Depth of the keys that are searched: policy.NAME.min."""

MAX_READ_CHARS: Final = 2 * 1024 * 1024
"""Total text that is parsed: enough for the largest file with one statement per line."""

_MAX_BITS: Final = (10**MAX_DIGITS).bit_length() - 1
_LONG_NUMBER: Final = re.compile(r"[0-9][0-9_]{999}")

_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")
_POLICY: Final = BY_NAME["policy"]
_FORM_OF_POLICY: Final = (
    'write [policy.workers], and below it min = "1s", max = "10m", default = "30s"'
)
_KNOWN: Final = {**BY_NAME, CREDENTIALS.name: CREDENTIALS}
_CREDENTIAL_KEYS: Final = ("endpoints", "ca", "cert", "key")
_FORM_OF_CREDENTIALS: Final = (
    'write [credentials.lab], and below it endpoints = ["db.example.org:2379"], ca = "ca.pem", and '
    'if the servers require a certificate cert = "me.pem", key = "me-key.pem"'
)
_FORM_OF_TERM: Final = 'write a number with ms, s, m, h or d, such as "30s"'


def read_file(path: Path, named_by: str) -> Layer:
    """Read a file. A file that cannot be read is a mistake of the source that names it."""
    layer, shown_as = Layer(), shown_path(path)
    try:
        text = _text_of(path)
    except ValueError as error:
        layer.note(Mistake(f"{named_by}: {shown_as} cannot be read: {error}", None))
        return layer
    try:
        read = tomllib.loads(text)
    except RecursionError:
        why = "tables are nested too deeply; write KEY = VALUE"
        layer.note(Mistake(f"{shown_as}: {why}", None))
    except ValueError as error:
        layer.note(Mistake(_not_toml(shown_as, text, error), None))
    else:
        _File(shown_as, lines_of(text), layer).read(read)
    return layer


def _text_of(path: Path) -> str:
    try:
        # Opening a pipe blocks until there is a writer, unless it is opened non-blocking.
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a regular file; name a TOML file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{error.strerror or error}; name a TOML file") from None
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES:,} bytes; name a TOML file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8; name a TOML file") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _not_toml(path: str, text: str, error: ValueError) -> str:
    if not isinstance(error, tomllib.TOMLDecodeError):  # raised by `int`
        found = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, found.start() if found else 0) + 1
        return f"{path}:{line}: a number has too many digits: write at most {MAX_DIGITS}"
    found = _AT_LINE.search(str(error))
    line = int(found[1]) if found and found[1] else max(1, len(text.splitlines()))
    why = one_line(_AT_LINE.sub("", str(error)))
    return f'{path}:{line}: not valid TOML: {why}; write KEY = VALUE, such as quota = "2GiB"'


class _File:
    """A valid TOML file."""

    def __init__(self, path: str, lines: dict[KeyPath, int], layer: Layer) -> None:
        self._path = path
        self._lines = lines
        self._layer = layer

    def read(self, table: dict[str, Any]) -> None:
        """Read all keys, in file order."""
        for key, value in table.items():
            if self._layer.is_full:
                break
            option = _KNOWN.get(key)
            if option is None:
                self._refuse_unknown(key, value)
            elif option is CREDENTIALS:
                self._read_credentials(value)
            elif option is _POLICY:
                self._read_policies(value)
            else:
                self._read_value(option, value)

    def _where(self, *path: str) -> str:
        line = self._lines.get(path)
        return self._path if line is None else f"{self._path}:{line}"

    def _refuse_unknown(self, key: str, value: Any) -> None:
        meant = hint(key, BY_NAME) or "see `leasehold serve --help` for the list"
        if isinstance(value, dict):
            meant = (
                "write its keys without a table; only policies and credentials are tables: "
                "[policy.workers]"
            )
        near = nearest(key, BY_NAME)
        text = f"{self._where(key)}: {shown_name(key)} is not a known setting: {meant}"
        self._layer.note(Mistake(text, near))

    def _read_value(self, option: Option, value: Any) -> None:
        where, kind = self._where(option.name), option.kind
        values = value if kind.is_list and isinstance(value, list) else [value]
        if self._layer.attempt(option, where, option.name, check_number, len(values)) is FAILED:
            return
        wrong = [each for each in values if type(each) not in kind.takes or _is_vast(each)]
        for each in wrong:
            why = f"{option.name}: {_shown(each)} has the wrong type: {_form(option)}"
            self._layer.refuse(option, where, why)
        if not wrong:
            self._layer.take_texts(option, where, map(_text, values), option.name)

    # Policies.

    def _read_policies(self, value: Any) -> None:
        where = self._where(_POLICY.name)
        if not isinstance(value, dict):
            self._layer.refuse(_POLICY, where, f"{_shown(value)} is not a table: {_FORM_OF_POLICY}")
            return
        found = [self._read_policy(name, table) for name, table in value.items()]
        if FAILED not in found:
            self._layer.given[_POLICY.name] = Given(tuple(found), where)

    def _read_policy(self, name: str, table: Any) -> Any:
        path = (_POLICY.name, name)
        where, key = self._where(*path), _joined(path)
        if not isinstance(table, dict):
            why = f"{key}: {_shown(table)} is not a table: {_FORM_OF_POLICY}"
            self._layer.refuse(_POLICY, where, why)
            return FAILED
        terms_ms = {each: self._read_term(path, each, value) for each, value in table.items()}
        is_named = self._layer.attempt(_POLICY, where, key, check_name, name) is not FAILED
        if not is_named or FAILED in terms_ms.values():
            return FAILED
        policy = self._layer.attempt(_POLICY, where, key, policy_of, terms_ms)
        return FAILED if policy is FAILED else (name, policy)

    def _read_term(self, policy: KeyPath, key: str, value: Any) -> Any:
        path = (*policy, key)
        where, whole = self._where(*path), _joined(path)
        if key not in FIELDS:
            self._layer.refuse(_POLICY, where, f"{whole} is not a known setting: {_FORM_OF_POLICY}")
        elif not isinstance(value, str):
            why = f"{whole}: {_shown(value)} has the wrong type: {_FORM_OF_TERM}"
            self._layer.refuse(_POLICY, where, why)
        else:
            return self._layer.attempt(_POLICY, where, whole, term_ms, value)
        return FAILED

    # Credentials.

    def _read_credentials(self, value: Any) -> None:
        where = self._where(CREDENTIALS.name)
        if not isinstance(value, dict):
            why = f"{_shown(value)} is not a table: {_FORM_OF_CREDENTIALS}"
            self._layer.refuse(CREDENTIALS, where, why)
            return
        if self._layer.attempt(CREDENTIALS, where, "", check_number, len(value)) is FAILED:
            return
        found = [self._read_credential(name, table) for name, table in value.items()]
        if FAILED not in found:
            self._layer.given[CREDENTIALS.name] = Given(tuple(found), where)

    def _read_credential(self, name: str, table: Any) -> Any:
        path = (CREDENTIALS.name, name)
        where, key = self._where(*path), _joined(path)
        found = self._layer.attempt(CREDENTIALS, where, key, _credential_of, name, table)
        return FAILED if found is FAILED else (name, found)


def _credential_of(name: str, table: Any) -> RemoteEndpoints:
    check_name(name, "the name of credentials")
    if not isinstance(table, dict):
        raise ValueError(f"{_shown(table)} is not a table: {_FORM_OF_CREDENTIALS}")
    for key in table:
        if key not in _CREDENTIAL_KEYS:
            raise ValueError(f"{shown_name(key)} is not a known setting: {_FORM_OF_CREDENTIALS}")
    texts = table.get("endpoints", [])
    if not texts or not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueError(f"endpoints is not a list of addresses: {_FORM_OF_CREDENTIALS}")
    check_number(len(texts))
    files = {key: _file_of(key, table[key]) for key in _CREDENTIAL_KEYS[1:] if key in table}
    if "ca" not in files or ("cert" in files) != ("key" in files):
        raise ValueError(f"ca, or one of cert and key, is missing: {_FORM_OF_CREDENTIALS}")
    return RemoteEndpoints(endpoints(texts, _FORM_OF_CREDENTIALS), **files)


def _file_of(key: str, value: Any) -> Path:
    if not isinstance(value, str) or not is_shown(value) or len(value) > MAX_VALUE_CHARS:
        raise ValueError(f"{key} is not a file name: {_FORM_OF_CREDENTIALS}")
    path: Path = FILE.parse(value)
    return path


def credential_lines(name: str, found: RemoteEndpoints) -> list[str]:
    """Format one entry as TOML."""
    files = {"ca": found.ca, "cert": found.cert, "key": found.key}
    return [
        f'[credentials."{name}"]',
        f"endpoints = [{', '.join(map(_quoted, found.endpoints))}]",
        *(f"{key} = {_quoted(str(file))}" for key, file in files.items() if file is not None),
    ]


def _joined(path: KeyPath) -> str:
    return ".".join(map(shown_name, path))


def _is_vast(value: Any) -> bool:
    """Whether it is an integer that is too large to print."""
    return isinstance(value, int) and value.bit_length() > _MAX_BITS


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "a table"
        case list():
            return "a list"
        case str():
            return shown(value)
    return f"a number of more than {MAX_DIGITS} digits" if _is_vast(value) else str(value)


# The line of each key.


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1 on, of each key and table by path.

    `tomllib` does not provide it. But a statement that ends with a line can be parsed alone, under
    the header of its table: so lines are collected until they parse, and the resulting keys begin
    on the first of them. The whole text must have been parsed before: errors in it are not detected
    here. A statement of many lines is parsed once for each of them; `MAX_READ_CHARS` limits the
    total, and lines after it are not known.
    """
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
        read = _parsed(statement if statement is header else header + statement)
        if read is None:
            continue
        for path in _paths(read):
            found.setdefault(path, begin)
        statement = ""
    return found


def _parsed(text: str) -> dict[str, Any] | None:
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


# Values in the output of `leasehold config`.


def toml_of(option: Option, value: Any) -> str:
    """Format a value as TOML."""
    kind = option.kind
    if kind.is_list:
        return f"[{', '.join(_quoted(kind.show(each)) for each in value)}]"
    shown = kind.show(value)
    return shown if kind.is_bare and shown != "off" else _quoted(shown)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _form(option: Option) -> str:
    kind = option.kind
    example = kind.example if kind.is_bare else _quoted(kind.example)
    several = f", or [{example}, ...]" if kind.is_list else ""
    return f"write {option.name} = {example}{several}"
