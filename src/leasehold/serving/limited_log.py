"""Log lines that a peer can cause, at a limited rate.

Lines are counted by their format string. Of each kind a burst is written, then one line every ten
seconds. If lines were left out, one further line reports how many, at most once a minute.
"""

import logging
from functools import partial
from typing import Final

from leasehold.basics.event_loop import EventLoop
from leasehold.http2.limits import Rate, TokenBucket

LINES: Final = Rate(30, 0.1)
"""Lines of one kind: enough to see a pattern, and at most 2 MB a day if it never ends."""

SUMMARY_S: Final = 60.0
"""How long after the first line that was left out their number is logged."""


class LimitedLog:
    """A logger for events that peers cause. `message` is a constant of the program."""

    def __init__(self, logger: logging.Logger, loop: EventLoop) -> None:
        self._logger = logger
        self._loop = loop
        self._budgets: dict[str, TokenBucket] = {}
        self._suppressed: dict[str, int] = {}

    def warning(self, message: str, *args: object) -> None:
        """Log a warning, unless there were too many of this kind."""
        self.log(logging.WARNING, message, *args)

    def log(self, level: int, message: str, *args: object) -> None:
        """Log a line, unless there were too many of this kind."""
        budget = self._budgets.get(message)
        if budget is None:
            budget = self._budgets[message] = TokenBucket(LINES)
        if budget.spend(self._loop.now()):
            self._logger.log(level, message, *args)
            return
        if message not in self._suppressed:
            self._suppressed[message] = 0
            self._loop.call_later(SUMMARY_S, partial(self._summarize, level, message))
        self._suppressed[message] += 1

    def _summarize(self, level: int, message: str) -> None:
        count = self._suppressed.pop(message)
        self._logger.log(
            level, "%d more log lines were suppressed, all of this kind: %s", count, message
        )
