"""Rounds: those who watch leases are visited in turn, some of them in each turn of the event loop.

So one event that concerns ten thousand watchers keeps nobody else waiting, and whoever changes a
lease pays nothing for telling others. A watcher that was told everything, one whose next event is
not on disk, and one whose client does not read are not visited until that changes.
"""

import asyncio
from collections import deque
from typing import Final

from leasehold.engine.lease_feeds import Feed, Follower
from leasehold.server.etcd.desk import Desk

VISITS_PER_TURN: Final = 100
"""Watchers that are visited before everybody else has a turn; some milliseconds at most."""

TIDIED_PER_TURN: Final = 1_000
"""Things that are forgotten before everybody else has a turn; about a millisecond."""


class Rounds:
    """Visits watchers when there may be something to tell them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._watchers = desk.store.lease_watchers
        self._watchers.on_news = self._news
        self._called: deque[Follower] = deque()
        self._waiting: dict[Follower, None] = {}
        """Those whose next event is not on disk."""
        self._is_going_on = False
        self.behind = 0
        """Watchers that have not been told everything."""

    def call(self, watcher: Follower) -> None:
        """Have a watcher visited, after those who were called before."""
        self._called.append(watcher)
        self.go_on()

    def await_disk(self, watcher: Follower) -> None:
        """Have a watcher visited when more is on disk."""
        self._waiting[watcher] = None
        self._desk.runtime.waiting.wake_when_durable(self)

    def dismiss(self, watcher: Follower) -> None:
        """Learn that a watcher is gone that had not been told everything."""
        self.behind -= 1
        self._waiting.pop(watcher, None)

    def wake(self) -> None:
        """Visit those who waited for the disk."""
        self._called.extend(self._waiting)
        self._waiting.clear()
        self.go_on()

    def _news(self, feed: Feed, position: int) -> None:
        """Have those visited who had been told everything, until now."""
        self.behind += len(feed.idle)
        if position > self._store.durable:
            self._waiting.update(feed.idle)
            self._desk.runtime.waiting.wake_when_durable(self)
        else:
            self._called.extend(feed.idle)
            self.go_on()
        feed.idle.clear()

    def go_on(self) -> None:
        """Visit, or forget, some more in the next turn of the loop."""
        if not self._is_going_on:
            self._is_going_on = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_going_on = False
        try:
            for _ in range(min(VISITS_PER_TURN, len(self._called))):
                self._called.popleft().visit()
        finally:
            is_untidy = self._tidy()
            if self._called or is_untidy:
                self.go_on()

    def _tidy(self) -> bool:
        """Forget what nobody needs; True if there is more of it."""
        more = self._watchers.tidy(TIDIED_PER_TURN)
        log = self._watchers.log
        if not self.behind:
            log.drop(TIDIED_PER_TURN)
        return more or (not self.behind and len(log) > 0)
