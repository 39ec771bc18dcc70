"""What people have written, repeated to them: in one line, and no more of it than they can read."""

import re
from pathlib import Path
from typing import Final

MAX_SHOWN: Final = 100
"""Characters of a value or a name that a line repeats."""

MAX_SHOWN_PATH: Final = 1000
"""Characters of a path, which is of use as a whole only."""

MAX_LINE: Final = 1400
"""Characters of a line; what is longer loses its middle."""

_NEVER_SHOWN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that control a terminal, end a line, or are no characters. Spaces of any script and
signs that a font may lack are none of these: there are directories with such names."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")


def is_shown(text: str) -> bool:
    """Say whether all of a text can be shown as it is."""
    return not _NEVER_SHOWN.search(text)


def shown(text: str) -> str:
    """Write a value in quotes, and how long it is if not all of it is there."""
    if len(text) <= MAX_SHOWN:
        return repr(text)
    return f"{text[:MAX_SHOWN]!r}... ({len(text):,} characters)"


def shown_name(name: str) -> str:
    """Write the name of a key or a variable, in quotes unless it is like one."""
    return name if len(name) <= MAX_SHOWN and _PLAIN.fullmatch(name) else shown(name)


def shown_path(path: Path) -> str:
    """Write the path of a file."""
    text = str(path)
    return text if len(text) <= MAX_SHOWN_PATH and is_shown(text) else shown(text)


def one_line(text: str) -> str:
    """Write a text of whatever origin in a line."""
    if len(text) > MAX_LINE:
        text = f"{text[: MAX_LINE // 2]} ... {text[-MAX_LINE // 2 :]}"
    return _NEVER_SHOWN.sub(lambda found: repr(found[0])[1:-1], text)
