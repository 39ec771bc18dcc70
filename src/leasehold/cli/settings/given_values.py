"""Given values of options, each with its source, and the mistakes that were found in them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from leasehold.cli.settings.error_texts import is_shown, shown
from leasehold.cli.settings.options import Option

MAX_VALUE_CHARS: Final = 4096
"""Characters of a value: the length limit of a path."""

MAX_VALUES: Final = 100
"""Values of a list."""

MAX_MISTAKES: Final = 50
"""Mistakes of one source that are reported; after that only that there are more."""

FAILED: Final = object()
"""Returned instead of a value after a failure."""


class Given(NamedTuple):
    """A value and its source: leasehold.toml:3, LEASEHOLD_QUOTA or --quota."""

    value: Any
    where: str


class Mistake(NamedTuple):
    """An error in one line: the source, the problem, and the right form."""

    text: str
    name: str | None
    """The option that it concerns; None if it may concern any."""


@dataclass(slots=True)
class Layer:
    """The values of one source by option name, and its mistakes."""

    given: dict[str, Given] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def take_texts(self, option: Option, where: str, texts: Iterable[str], key: str = "") -> None:
        """Parse a value from a text, or a list from several.

        Only `where` is stored with a value; mistakes name the `key` as well.
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
        """Call a function; if it fails, record a mistake and return `FAILED`."""
        try:
            return read(*arguments)
        except ValueError as error:
            self.refuse(option, where, f"{key}: {error}" if key else str(error))
            return FAILED

    def refuse(self, option: Option, where: str, why: str) -> None:
        """Record a mistake."""
        self.note(Mistake(f"{where}: {why}", option.name))

    def note(self, mistake: Mistake) -> None:
        """Record a mistake, unless there are too many."""
        if len(self.mistakes) < MAX_MISTAKES:
            self.mistakes.append(mistake)
        elif not self.is_full:
            self.mistakes.append(Mistake("there are more errors: correct these first", None))

    @property
    def is_full(self) -> bool:
        """Whether there are so many mistakes that no more are recorded."""
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
            f"{shown(text)} has control characters, or bytes that are not UTF-8: write a value "
            f"without them, such as {option.kind.example}"
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
