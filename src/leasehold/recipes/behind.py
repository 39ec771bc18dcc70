"""`Behind`: those who are in line behind the owner of a lock, as it hears of them."""

from collections import deque
from collections.abc import Callable

from leasehold.engine.values import Event, KeyValue
from leasehold.errors import Compacted, LeaseholdError
from leasehold.recipes.contending import Look
from leasehold.recipes.feeds import Feeds, Subscription
from leasehold.recipes.naming import Claim, is_contender, prefix_of


class Behind:
    """Who waits, from when the line was looked at until it is followed no more."""

    def __init__(
        self,
        name: bytes,
        on_change: Callable[[Event], object],
        on_gap: Callable[[LeaseholdError], object],
    ) -> None:
        """`on_change` is told of every change of the line, our own key's too."""
        self._prefix = prefix_of(name)
        self._on_change = on_change
        self._on_gap = on_gap
        self._waiters: dict[bytes, KeyValue] = {}
        """In order of their create revisions."""
        self._unanswered: deque[KeyValue] = deque()
        """Those of them who wait for a definite no."""
        self._subscription: Subscription | None = None
        self.is_cut_off = False
        """Whether there are more in line than we know."""
        self.must_look = False
        """Whether it is not known any more who is in line."""

    def __bool__(self) -> bool:
        return bool(self._waiters)

    @property
    def first(self) -> KeyValue | None:
        """Who is next, as far as we know."""
        return next(iter(self._waiters.values()), None)

    @property
    def has_work(self) -> bool:
        """Whether somebody has to be answered, or looked for."""
        return self.must_look or bool(self._unanswered)

    def next_unanswered(self) -> KeyValue | None:
        """Take the next one who wants an answer; None if it has left meanwhile."""
        waiter = self._unanswered.popleft()
        return waiter if waiter.key in self._waiters else None

    def follow(self, seen: Look, feeds: Feeds) -> None:
        """Know the line as it was seen, and hear of all that happens to it."""
        self.stop()
        for pair in seen.behind:
            self._note_waiter(pair)
        self.is_cut_off = seen.more
        self._subscription = feeds.subscribe(
            self._prefix, seen.revision + 1, self._changed, self._missed
        )

    def stop(self) -> None:
        """Know nothing of it any more."""
        self._waiters = {}
        self._unanswered.clear()
        self.is_cut_off = self.must_look = False
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    def note(self, event: Event) -> bool:
        """Take a change of somebody else's key; True if it is new in line."""
        if event.pair is None:
            self._waiters.pop(event.key, None)
            self.must_look = self.must_look or (self.is_cut_off and not self._waiters)
            return False
        if event.key in self._waiters:
            return False
        self._note_waiter(event.pair)
        return True

    def _note_waiter(self, pair: KeyValue) -> None:
        self._waiters[pair.key] = pair
        claim = Claim.decode(pair.value)
        if claim is not None and claim.tries:
            self._unanswered.append(pair)

    def _changed(self, event: Event) -> None:
        if is_contender(self._prefix, event.key):
            self._on_change(event)

    def _missed(self, error: LeaseholdError) -> None:
        self._subscription = None
        self.must_look = isinstance(error, Compacted)
        self._on_gap(error)
