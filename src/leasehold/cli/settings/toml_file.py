"""Settings from a TOML file. All that is wrong with it is told at once, with lines."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from leasehold.cli.settings.given import Layer
from leasehold.cli.settings.nearest import hint
from leasehold.cli.settings.options import BY_NAME, Option
from leasehold.cli.settings.policy_kind import FIELDS, NamedPolicy, check_name, policy_of, term_ms
from leasehold.cli.settings.toml_lines import KeyPath, lines_of

MAX_FILE_BYTES: Final = 1024 * 1024

_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")
_TABLE: Final = "policy"
_FORM_OF_TERM: Final = 'write a number with ms, s, m, h or d, such as "30s"'


def read_file(path: Path) -> Layer:
    """Read a file; what cannot be read is a mistake like any other."""
    layer = Layer()
    text = _text_of(path, layer)
    if text is None:
        return layer
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        layer.mistakes.append(_not_toml(path, text, str(error)))
        return layer
    _File(path, lines_of(text), layer).read(read)
    return layer


def _text_of(path: Path, layer: Layer) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"it is longer than {MAX_FILE_BYTES:,} bytes")
        return content.decode()
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except ValueError as error:
        why = str(error)
    layer.mistakes.append(f"{path} cannot be read: {why}: name a TOML file, as --config does")
    return None


def _not_toml(path: Path, text: str, error: str) -> str:
    found = _AT_LINE.search(error)
    line = int(found[1]) if found and found[1] else max(1, len(text.splitlines()))
    why = _AT_LINE.sub("", error)
    return f'{path}:{line}: this is not TOML: {why}; write KEY = VALUE, such as quota = "2GiB"'


class _File:
    """A file that is TOML."""

    def __init__(self, path: Path, lines: dict[KeyPath, int], layer: Layer) -> None:
        self._path = path
        self._lines = lines
        self._layer = layer

    def read(self, table: dict[str, Any]) -> None:
        """Read all keys, in their order."""
        for key, value in table.items():
            option = BY_NAME.get(key)
            if option is None:
                self._refuse((key,), _unknown(key))
            elif key == _TABLE:
                self._policies(option, value)
            else:
                self._value(option, value)

    def _where(self, path: KeyPath) -> str:
        return f"{self._path}:{self._lines.get(path, 1)}"

    def _named(self, path: KeyPath) -> str:
        return f"{self._where(path)}: {'.'.join(path)}"

    def _refuse(self, path: KeyPath, why: str) -> None:
        self._layer.mistakes.append(f"{self._where(path)}: {why}")

    def _value(self, option: Option, value: Any) -> None:
        path, kind = (option.name,), option.kind
        values = value if kind.is_list and isinstance(value, list) else [value]
        before = len(self._layer.mistakes)
        for each in values:
            if type(each) not in kind.takes:
                self._refuse(path, f"{option.name}: {_shown(each)} will not do: {_form(option)}")
        if before == len(self._layer.mistakes):
            self._layer.take_texts(option, self._named(path), map(_text, values))
            self._relocate(option, path)

    def _relocate(self, option: Option, path: KeyPath) -> None:
        """Name the file and the line alone, where a value is right."""
        given = self._layer.given.get(option.name)
        if given is not None:
            self._layer.given[option.name] = type(given)(given.value, self._where(path))

    def _policies(self, option: Option, value: Any) -> None:
        if not isinstance(value, dict):
            self._refuse((_TABLE,), f"{_TABLE} is a table for each policy: {_form(option)}")
            return
        before = len(self._layer.mistakes)
        found = [self._policy(name, table) for name, table in value.items()]
        if before == len(self._layer.mistakes):
            self._layer.note(option, self._where((_TABLE,)), tuple(found))

    def _policy(self, name: str, table: Any) -> NamedPolicy | None:
        path = (_TABLE, name)
        if not isinstance(table, dict):
            self._refuse(path, f"{_TABLE}.{name}: {_shown(table)} is no table: {_form_of_policy()}")
            return None
        before = len(self._layer.mistakes)
        self._layer.attempt(self._where(path), check_name, name)
        terms_ms = {key: self._term(path, key, value) for key, value in table.items()}
        if before != len(self._layer.mistakes):
            return None
        return name, self._layer.attempt(self._named(path), policy_of, terms_ms)

    def _term(self, policy: KeyPath, key: str, value: Any) -> Any:
        path = (*policy, key)
        if key not in FIELDS:
            self._refuse(path, f"{key} is no term of a policy: {_form_of_policy()}")
        elif not isinstance(value, str):
            self._refuse(path, f"{'.'.join(path)}: {_shown(value)} will not do: {_FORM_OF_TERM}")
        else:
            return self._layer.attempt(self._named(path), term_ms, value)
        return None


def _unknown(key: str) -> str:
    meant = hint(key, BY_NAME)
    return f"{key} is not known{': ' + meant if meant else '; `leasehold config` lists what is'}"


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
            return repr(value)
    return str(value)


def toml_of(option: Option, value: Any) -> str:
    """Write a value as it would be in a file."""
    kind = option.kind
    if kind.is_list:
        return f"[{', '.join(_quoted(kind.show(each)) for each in value)}]"
    shown = kind.show(value)
    return shown if kind.is_bare and shown != "off" else _quoted(shown)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _form(option: Option) -> str:
    if option.name == _TABLE:
        return _form_of_policy()
    kind = option.kind
    example = kind.example if kind.is_bare else _quoted(kind.example)
    several = f", or [{example}, ...]" if kind.is_list else ""
    return f"write {option.name} = {example}{several}"


def _form_of_policy() -> str:
    return f'write [{_TABLE}.workers], and below it min = "1s", max = "10m", default = "30s"'
