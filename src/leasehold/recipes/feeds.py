"""What happens below many prefixes, each told to whoever wants to know."""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.values import Event
from leasehold.errors import Closed, LeaseholdError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Subscription:
    """What one subscriber hears of one prefix."""

    __slots__ = ("_feeds", "next_revision", "on_event", "on_gap", "prefix")

    def __init__(
        self,
        feeds: "Feeds",
        prefix: bytes,
        start: int,
        on_event: Callable[[Event], None],
        on_gap: Callable[[LeaseholdError], None],
    ) -> None:
        self._feeds = feeds
        self.prefix = prefix
        self.next_revision = start
        self.on_event = on_event
        self.on_gap = on_gap

    def cancel(self) -> None:
        """Tell nothing more. It may be called again, and from what it tells."""
        self._feeds._cancel(self)  # noqa: SLF001  they are one


class Feeds:
    """Tells of changes below any number of prefixes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: dict[Subscription, asyncio.Task[None]] = {}
        self._is_closed = False

    def subscribe(
        self,
        prefix: bytes,
        start: int,
        on_event: Callable[[Event], None],
        on_gap: Callable[[LeaseholdError], None],
    ) -> Subscription:
        """Have `on_event` told of each change of a key that begins with `prefix`, which ends in /.

        From revision `start` on, in order, each once, on the event loop. `on_gap` is told once, and
        nothing after it, if that cannot go on.
        """
        if not prefix.endswith(b"/"):
            raise ValueError(f"a prefix must end with a slash, unlike {prefix!r}")
        if start < 1:
            raise ValueError(f"start must be a revision, 1 or later, not {start}")
        if self._is_closed:
            raise Closed("the feeds were closed")
        subscription = Subscription(self, prefix, start, on_event, on_gap)
        loop = asyncio.get_running_loop()
        self._tasks[subscription] = loop.create_task(self._read(subscription))
        return subscription

    async def close(self) -> None:
        """Tell nobody anything more."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for subscription in list(self._tasks):
            self._cancel(subscription)
        own = asyncio.current_task()
        if others := [task for task in tasks if task is not own]:
            await asyncio.wait(others)

    def _cancel(self, subscription: Subscription) -> None:
        task = self._tasks.pop(subscription, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _read(self, subscription: Subscription) -> None:
        try:
            prefix = subscription.prefix
            watch = self._engine.watch(prefix, prefix_end(prefix), start=subscription.next_revision)
            try:
                while subscription in self._tasks:
                    told = await anext(watch)
                    for event in told.events:
                        if subscription in self._tasks:
                            self._tell(subscription.on_event, event)
            finally:
                watch.cancel()
        except LeaseholdError as error:
            if self._tasks.pop(subscription, None) is not None:
                self._tell(subscription.on_gap, error)

    def _tell(self, callback: Callable[[T], None], what: T) -> None:
        try:
            callback(what)
        except Exception:
            logger.exception("a subscriber has failed, and is told of what is next all the same")
