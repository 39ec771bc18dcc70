"""Errors that are stored and raised more than once.

Each `raise` of an exception adds to its traceback, which keeps the frames of every caller alive. An
exception that is stored and raised again leaks memory with each call; `with_traceback(None)` does
not help two callers that raise it at the same time. So a stored error is never raised itself:
`raise fresh(stored)` raises a copy. `tests/unit/test_stored_errors.py` enforces it.
"""

from typing import Any, TypeVar, cast

E = TypeVar("E", bound=BaseException)


def fresh(stored: E) -> E:
    """Return a copy of an error, with its class, arguments, attributes and cause, but no traceback.

    The copy is made without `__init__`: the arguments of an error need not be those of its class.
    """
    reduced = cast("tuple[Any, ...]", stored.__reduce__())  # `args` lacks the file of an `OSError`
    copy = type(stored).__new__(type(stored), *reduced[1])
    copy.args = stored.args
    vars(copy).update(vars(stored))
    copy.__cause__ = stored.__cause__
    return copy
