"""Strings of JSON, as Go writes them: so that they do no harm within a page of HTML either."""

import re
from typing import Final

_SPECIAL: Final = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def quoted(text: str) -> str:
    """Write a string."""
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":  # half of a pair: there is no such character
        return "\ufffd"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"
