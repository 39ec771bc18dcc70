"""The exit codes of the client commands, and their text in the help."""

import textwrap
from typing import Final

OK: Final = 0
FAILURE: Final = 1
USAGE_ERROR: Final = 2
NOT_THERE: Final = 3
NO_SERVER: Final = 4
NOT_MET: Final = 5
LOST: Final = 6
DENIED: Final = 7

MEANINGS: Final = {
    OK: "success",
    FAILURE: "failure, or the server refused the request",
    USAGE_ERROR: "the command line is wrong; nothing was sent",
    NOT_THERE: "no such key, lease or permit",
    NO_SERVER: "cannot connect to a server, or no answer within the time limit",
    NOT_MET: "the conditions do not hold; the --else steps were executed",
    LOST: "a lease or lock was lost while it was held",
    DENIED: "denied: another client holds it, or the right is not granted",
}
_ALWAYS: Final = (OK, FAILURE, USAGE_ERROR, NO_SERVER)


def epilog(examples: str, *others: int, notes: str = "") -> str:
    """Return the end of a help text: examples, notes, and the exit codes."""
    codes = sorted({*_ALWAYS, *others})
    listed = "\n".join(f"  {code}  {MEANINGS[code]}" for code in codes)
    lines = textwrap.dedent(examples).strip().splitlines()
    title = "example" if len(lines) == 1 else "examples"
    shown = "\n".join(f"  {line}" for line in lines)
    said = f"{notes.strip()}\n\n" if notes else ""
    return f"{title}:\n{shown}\n\n{said}exit codes:\n{listed}\n"
