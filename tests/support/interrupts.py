"""An exception in the middle of a call, as a signal handler may raise one: at each instruction."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import leasehold

PACKAGE = str(Path(leasehold.__file__).parent)


BEGIN = ("__get__", "__enter__")
"""Where a block begins."""


FINALIZERS = ("__del__", "_interrupted", "_collected")
"""Finalizers, and callbacks of weak references."""


class Interrupted(BaseException):
    """What a signal handler raises."""


class Interruption:
    """Raises `Interrupted` before the nth instruction that this thread executes in the package.

    Signal handlers run at some of these instructions only, so this is more than can happen. It
    leaves out finalizers: Python prints an exception in one of them, and does not raise it.
    """

    def __init__(
        self, number: int, begin: Sequence[str] = BEGIN, *, is_in_cycle: bool = False
    ) -> None:
        """`begin` are the functions of which the first that is called begins the count.

        With `is_in_cycle` the exception is in a cycle with its traceback, as with `kept = error`
        in a program: only the garbage collector finds what it refers to.
        """
        self._is_in_cycle = is_in_cycle
        self._left = number
        self._begin = begin
        self._has_begun = False
        self.where = ""

    def __call__(self, work: Callable[[], object]) -> bool:
        """Return whether it was interrupted; False if it has fewer instructions."""
        sys.settrace(self._called)
        try:
            work()
        except Interrupted as error:
            kept = error if self._is_in_cycle else None  # noqa: F841
            return True
        finally:
            sys.settrace(None)
        return False

    def _called(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name in FINALIZERS:
            return None
        if not self._has_begun and frame.f_code.co_name not in self._begin:
            return None
        self._has_begun = True
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._count(frame, event)
        return self._executed

    def _executed(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            self._count(frame, event)
        return self._executed

    def _count(self, frame: FrameType, event: str) -> None:
        self._left -= 1
        if not self._left:
            code = frame.f_code
            self.where = f"{code.co_qualname}, line {frame.f_lineno}, {event} {frame.f_lasti}"
            raise Interrupted
