"""What a check answers when a history breaks a rule."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A violated rule, with the place and the operation."""

    text: str

    def __str__(self) -> str:
        return self.text
