"""What was given, by whatever source: a value with the place that it came from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from leasehold.cli.settings.options import Option
from leasehold.cli.settings.shown import is_shown, shown

MAX_VALUE_CHARS: Final = 4096
"""Characters of a value: as long as a path may be."""

MAX_VALUES: Final = 100
"""Values of a list."""

MAX_MISTAKES: Final = 50
"""Mistakes of one source that are told; then only that there are more."""

FAILED: Final = object()
"""What is no value."""


class Given(NamedTuple):
    """A value, and where it was written: leasehold.toml:3, LEASEHOLD_QUOTA or --quota."""

    value: Any
    where: str


class Mistake(NamedTuple):
    """What is wrong, where, and what would be right, in one line."""

    text: str
    name: str | None
    """The option that it is about; None if it may be about any."""


@dataclass(slots=True)
class Layer:
    """All that one source has, by the names of options, and what is wrong with it."""

    given: dict[str, Given] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take_texts(self, option: Option, where: str, texts: Iterable[str], key: str = "") -> None:
        """Read a value that was written as a text, or for a list as several.

        `where` alone is kept with a value; mistakes name the `key` as well.
        """
        texts = list(texts)
        if self.attempt(option, where, key, check_number, len(texts)) is FAILED:
            return
        values = [self.attempt(option, where, key, _parsed, option, text) for text in texts]
        if FAILED not in values:
            value = self.attempt(option, where, key, _joined, option, values)
            if value is not FAILED:
                self.given[option.name] = Given(value, where)

    def attempt(
        self, option: Option, where: str, key: str, read: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call something; if it fails, note that and return `FAILED`."""
        try:
            return read(*arguments)
        except ValueError as error:
            self.refuse(option, where, f"{key}: {error}" if key else str(error))
            return FAILED

    def refuse(self, option: Option, where: str, why: str) -> None:
        """Note a mistake."""
        self.note(Mistake(f"{where}: {why}", option.name))

    def note(self, mistake: Mistake) -> None:
        """Note a mistake, unless there are very many."""
        if len(self.mistakes) < MAX_MISTAKES:
            self.mistakes.append(mistake)
        elif not self.is_full:
            self.mistakes.append(Mistake("there are more errors: correct these first", None))

    @property
    def is_full(self) -> bool:
        """Whether so much is wrong that nothing further is told."""
        return len(self.mistakes) > MAX_MISTAKES


def check_number(values: int) -> None:
    """Refuse a list that is too long."""
    if values > MAX_VALUES:
        raise ValueError(f"too many values ({values:,}): write at most {MAX_VALUES}")


def _parsed(option: Option, text: str) -> Any:
    if len(text) > MAX_VALUE_CHARS:
        raise ValueError(f"{shown(text)} is too long: write at most {MAX_VALUE_CHARS:,} characters")
    if not is_shown(text):
        raise ValueError(
            f"{shown(text)} has control characters: leave them out, such as {option.kind.example}"
        )
    return option.kind.parse(text)


def _joined(option: Option, values: list[Any]) -> Any:
    if not option.kind.is_list:
        (value,) = values
        return value
    if not values:
        raise ValueError(
            f"the list is empty: write at least one value, such as {option.kind.example}"
        )
    names = [value[0] if isinstance(value, tuple) else str(value) for value in values]
    for name in names:
        if names.count(name) > 1 and not name.endswith(":0"):
            raise ValueError(f"{shown(name)} is given twice: write it once")
    return tuple(values)
