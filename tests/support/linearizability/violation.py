"""What a check answers when a history breaks a rule."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A rule was broken. Its text tells which, where, and by what."""

    text: str

    def __str__(self) -> str:
        return self.text
