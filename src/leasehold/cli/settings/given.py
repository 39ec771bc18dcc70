"""What was given, by whatever source: a value with the place that it came from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from leasehold.cli.settings.options import Option


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and where it was written: leasehold.toml:3, LEASEHOLD_QUOTA or --quota."""

    value: Any
    where: str


@dataclass(slots=True)
class Layer:
    """All that one source has, by the names of options, and what is wrong with it."""

    given: dict[str, Given] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take_texts(self, option: Option, where: str, texts: Iterable[str]) -> None:
        """Read a value that was written as a text, or for a list as several."""
        values = [self.attempt(where, option.kind.parse, text) for text in texts]
        if FAILED not in values:
            self.note(option, where, self.attempt(where, _joined, option, values))

    def note(self, option: Option, where: str, value: Any) -> None:
        """Note a value, unless it could not be read."""
        if value is not FAILED:
            self.given[option.name] = Given(value, where)

    def attempt(self, where: str, read: Callable[..., Any], *arguments: Any) -> Any:
        """Call something; if it fails, note that and return `FAILED`."""
        try:
            return read(*arguments)
        except ValueError as error:
            self.mistakes.append(f"{where}: {error}")
            return FAILED


FAILED: Final = object()
"""What is no value."""


def _joined(option: Option, values: list[Any]) -> Any:
    if not option.kind.is_list:
        (value,) = values
        return value
    if not values:
        raise ValueError(f"the list is empty: write one at least, such as {option.kind.example}")
    names = [value[0] if isinstance(value, tuple) else str(value) for value in values]
    for name in names:
        if names.count(name) > 1 and not name.endswith(":0"):
            raise ValueError(f"{name!r} is there twice: write it once")
    return tuple(values)
