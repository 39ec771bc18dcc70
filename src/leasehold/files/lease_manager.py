"""The lease manager: one write lease per holder, for all files that the holder has open. Pure.

A lease is created when its holder opens the first file, and removed together with its last file.
It is renewed by `renew` and by each further file. Two limits count from the last renewal:

- past the soft limit, another client may take over a file of the lease;
- past the hard limit, `check` releases the files of the lease.

A limit is passed when more time than the limit has elapsed, not when exactly as much has.

A file is in one of three states: in no lease, in exactly one lease, or waiting for a retry. A file
waits for a retry when `check` could not release it. It is in no lease then, so that it does not
delay the other files, and a holder may add it again, which cancels the retry.

Time is an argument and does not go back: a time before the latest one that was passed counts as the
latest one. So the lease that was renewed last is always the youngest, and an ordered dict in which
a renewal moves the lease to the end is sorted by age. Lookups by holder and by file, the oldest
lease and a renewal take constant time. Adding and removing a file take O(log n), because the files
are kept sorted for `files`.

The module does no logging, since it is pure. It passes messages to two callbacks, which may be the
methods `error` and `info` of a logger. It is not thread-safe.
"""

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, KeysView
from typing import Final, Generic, NamedTuple, TypeVar

from sortedcontainers import SortedDict, SortedList

from leasehold.basics.callbacks import check_plain_callback, ignore
from leasehold.files.state import HARD_LIMIT_S, SOFT_LIMIT_S

CHECK_BUDGET_S: Final = 0.025
"""How long one `check` may take. The last release that it begins may end later."""

RETRY_WAITS_S: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 600.0)
"""The wait after each failed release of a file. The last one repeats.

They have no jitter: retries run one after the other within the budget of `check`, so that those
which are due together cause no burst.
"""

MAX_RETRYING: Final = 100_000
"""Files that may wait for a retry. Beyond it, the file with the latest retry is given up."""

F = TypeVar("F", bound=Hashable)


class WriteLease(Generic[F]):
    """The write lease of one holder. Only the lease manager changes it."""

    __slots__ = ("_files", "holder", "renewed_at")

    def __init__(self, holder: str, renewed_at: float) -> None:
        self.holder = holder
        self.renewed_at = renewed_at
        self._files: OrderedDict[F, None] = OrderedDict()

    @property
    def files(self) -> KeysView[F]:
        """The files in the order in which they were opened: a live view that cannot be changed."""
        return self._files.keys()

    def __repr__(self) -> str:
        return f"<WriteLease {self.holder!r}: {len(self._files)} files>"


class _ManagedLease(WriteLease[F]):
    """A lease with the operations that the manager needs."""

    __slots__ = ("is_reported",)

    def __init__(self, holder: str, renewed_at: float) -> None:
        super().__init__(holder, renewed_at)
        self.is_reported = False
        """Whether it was reported that the lease is past the hard limit."""

    def insert(self, file: F) -> None:
        self._files[file] = None

    def discard(self, file: F) -> None:
        del self._files[file]

    def first(self) -> F:
        # In an ordered dict this takes constant time, however many files before it were discarded.
        return next(iter(self._files))


class _Retry(NamedTuple, Generic[F]):
    """A file that could not be released. Retries are sorted by their first two fields."""

    due_at: float
    number: int
    holder: str
    file: F
    failures: int


class LeaseManager(Generic[F]):
    """The leases of all holders, found by holder, by file and by age.

    A file is any hashable object. The files of one manager must be comparable with each other.
    """

    def __init__(
        self,
        *,
        soft_limit_s: float = SOFT_LIMIT_S,
        hard_limit_s: float = HARD_LIMIT_S,
        on_error: Callable[[str], object] = ignore,
        on_info: Callable[[str], object] = ignore,
    ) -> None:
        """Create a manager without leases.

        `on_error` receives a message about each wrong `remove` and each failed release, `on_info`
        one about each lease that passed the hard limit.
        """
        if not 0 < soft_limit_s <= hard_limit_s:
            raise ValueError(
                "the soft limit must be positive and at most the hard limit, "
                f"got {soft_limit_s!r} s and {hard_limit_s!r} s"
            )
        check_plain_callback(on_error, "on_error")
        check_plain_callback(on_info, "on_info")
        self.soft_limit_s: Final = soft_limit_s
        self.hard_limit_s: Final = hard_limit_s
        self._on_error = on_error
        self._on_info = on_info
        self._leases: OrderedDict[str, _ManagedLease[F]] = OrderedDict()
        """By holder, the lease that was renewed first at the front."""
        self._by_file: SortedDict[F, _ManagedLease[F]] = SortedDict()
        self._retries: SortedList[_Retry[F]] = SortedList()
        self._retry_of: dict[F, _Retry[F]] = {}
        self._retry_numbers = itertools.count()
        self._is_retry_next = False
        self._is_checking = False
        self._now = -math.inf

    @property
    def count(self) -> int:
        """The number of files in leases, without those that wait for a retry."""
        return len(self._by_file)

    @property
    def retrying(self) -> int:
        """The number of files that wait for a retry of their release."""
        return len(self._retries)

    def by_holder(self, holder: str) -> WriteLease[F] | None:
        """Return the lease of a holder."""
        return self._leases.get(holder)

    def by_file(self, file: F) -> WriteLease[F] | None:
        """Return the lease that a file is in."""
        return self._by_file.get(file)

    def oldest(self) -> WriteLease[F] | None:
        """Return the lease whose last renewal is the longest ago."""
        return self._oldest()

    def files(self, after: F | None, limit: int) -> list[tuple[F, str]]:
        """Return up to `limit` files in leases, sorted, each with its holder.

        The page begins after the file `after`, which need not be in a lease any more.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}")
        page = itertools.islice(self._by_file.irange(after, inclusive=(False, True)), limit)
        return [(file, self._by_file[file].holder) for file in page]

    def is_past_soft(self, holder: str, now: float) -> bool:
        """Return whether a lease has passed the soft limit: false for an unknown holder."""
        return self._is_past(self._leases.get(holder), self.soft_limit_s, self._advance(now))

    def is_past_hard(self, holder: str, now: float) -> bool:
        """Return whether a lease has passed the hard limit: false for an unknown holder."""
        return self._is_past(self._leases.get(holder), self.hard_limit_s, self._advance(now))

    def add(self, holder: str, file: F, now: float) -> WriteLease[F]:
        """Add a file to the lease of a holder, and create or renew the lease.

        A file that is in the lease already is not counted again. A file that waits for a retry no
        longer does. Raise ValueError, and change nothing, if the file is in the lease of another
        holder.
        """
        current = self._by_file.get(file)
        if current is not None and current.holder != holder:
            raise ValueError(
                f"file {file!r} belongs to the lease of another holder, {current.holder!r}"
            )
        now = self._advance(now)
        lease = current or self._leases.get(holder) or _ManagedLease(holder, now)
        if current is None:
            self._by_file[file] = lease  # raises TypeError for ids that cannot be compared
            lease.insert(file)
            self._cancel_retry(file)
        self._renew(lease, now)
        return lease

    def renew(self, holder: str, now: float) -> bool:
        """Renew the lease of a holder; return false if it has none."""
        now = self._advance(now)
        lease = self._leases.get(holder)
        if lease is None:
            return False
        self._renew(lease, now)
        return True

    def remove(self, holder: str, file: F) -> None:
        """Remove a file from the lease of a holder, and the lease if this was its last file.

        A file that is not in the lease is reported as an error and changes nothing. For an unknown
        holder, nothing happens.
        """
        lease = self._leases.get(holder)
        if lease is None:
            return
        if file not in lease.files:
            self._on_error(f"cannot remove file {file!r}: it is not in the lease of {holder!r}")
            return
        del self._by_file[file]
        self._discard(lease, file)

    def reassign(self, file: F, holder: str, now: float) -> WriteLease[F]:
        """Move a file to the lease of another holder, and create or renew that lease.

        A file that the holder has already stays where it is, and the lease is renewed. Raise
        ValueError, and change nothing, if the file is in no lease.
        """
        current = self._by_file.get(file)
        if current is None:
            raise ValueError(f"file {file!r} does not belong to a lease")
        now = self._advance(now)
        lease = self._leases.get(holder) or _ManagedLease(holder, now)
        if lease is not current:
            self._discard(current, file)
            self._by_file[file] = lease
            lease.insert(file)
        self._renew(lease, now)
        return lease

    def check(
        self,
        now: float,
        release: Callable[[str, F], object],
        *,
        elapsed: Callable[[], float],
        budget_s: float = CHECK_BUDGET_S,
    ) -> bool:
        """Release files of leases past the hard limit, and retry releases that are due.

        `release` is called with a holder and a file: for the oldest lease first, and for retries in
        the order of their due times. While there are both, they take turns. If it returns, the file
        is removed. If it raises an Exception, this is reported as an error, and the file waits for
        a retry. `release` may call all methods but `check`. A file that it moves to the lease of
        another holder stays there, and a lease that it renews keeps the rest of its files.

        `elapsed` returns the seconds since any fixed moment. Stop after the first file that ends
        `budget_s` or more after the beginning, and return whether work is left.
        """
        if self._is_checking:
            raise RuntimeError("check must not be called by a release callback of check")
        now = self._advance(now)
        stop_at = elapsed() + budget_s
        self._is_checking = True
        try:
            while self._has_work(now):
                self._release_next(now, release)
                if elapsed() >= stop_at:
                    return self._has_work(now)
        finally:
            self._is_checking = False
        return False

    def _has_work(self, now: float) -> bool:
        return self._expired(now) is not None or self._due(now) is not None

    def _release_next(self, now: float, release: Callable[[str, F], object]) -> None:
        # `release` may change anything. So each step looks up its file anew, and iterates over
        # nothing. This also avoids copying all files of a large lease in every check.
        lease, retry = self._expired(now), self._due(now)
        # With retries always first, or last, many bad files or many leases could delay the others
        # for ever when each release takes a whole budget.
        if retry is not None and (lease is None or self._is_retry_next):
            self._is_retry_next = False
            holder, file, failures = retry.holder, retry.file, retry.failures
        else:
            assert lease is not None, "there is work"
            self._is_retry_next = True
            self._report_expired(lease)
            holder, file, failures = lease.holder, lease.first(), 0
        try:
            release(holder, file)
        except Exception as error:  # noqa: BLE001  one bad file must not stop the others
            self._finish(holder, file, failures + 1)
            self._on_error(
                f"cannot release file {file!r} of holder {holder!r} "
                f"(attempt {failures + 1}): {error!r}"
            )
        else:
            self._finish(holder, file, 0)

    def _report_expired(self, lease: _ManagedLease[F]) -> None:
        if not lease.is_reported:
            lease.is_reported = True
            self._on_info(
                f"the lease of {lease.holder!r} has passed the hard limit of "
                f"{self.hard_limit_s:g} s; files to release: {len(lease.files)}"
            )

    def _finish(self, holder: str, file: F, failures: int) -> None:
        """Remove a file after its release, or schedule a retry if that failed."""
        lease = self._by_file.get(file)
        if lease is not None:
            if lease.holder != holder:
                return  # the release moved the file to another holder
            del self._by_file[file]
            self._discard(lease, file)
        self._cancel_retry(file)
        if failures:
            self._retry_later(holder, file, failures)

    def _retry_later(self, holder: str, file: F, failures: int) -> None:
        wait_s = RETRY_WAITS_S[min(failures, len(RETRY_WAITS_S)) - 1]
        retry = _Retry(self._now + wait_s, next(self._retry_numbers), holder, file, failures)
        self._retries.add(retry)
        self._retry_of[file] = retry
        if len(self._retries) > MAX_RETRYING:
            last = self._retries[-1]
            self._cancel_retry(last.file)
            self._on_error(
                f"gave up file {last.file!r} of holder {last.holder!r} after {last.failures} "
                f"attempts to release it: {MAX_RETRYING} other files wait for a retry"
            )

    def _cancel_retry(self, file: F) -> None:
        retry = self._retry_of.pop(file, None)
        if retry is not None:
            self._retries.remove(retry)

    def _oldest(self) -> _ManagedLease[F] | None:
        return next(iter(self._leases.values()), None)

    def _expired(self, now: float) -> _ManagedLease[F] | None:
        lease = self._oldest()
        return lease if self._is_past(lease, self.hard_limit_s, now) else None

    def _due(self, now: float) -> _Retry[F] | None:
        return self._retries[0] if self._retries and self._retries[0].due_at <= now else None

    @staticmethod
    def _is_past(lease: WriteLease[F] | None, limit_s: float, now: float) -> bool:
        return lease is not None and now - lease.renewed_at > limit_s

    def _renew(self, lease: _ManagedLease[F], now: float) -> None:
        lease.renewed_at = now
        lease.is_reported = False
        self._leases[lease.holder] = lease
        self._leases.move_to_end(lease.holder)

    def _discard(self, lease: _ManagedLease[F], file: F) -> None:
        lease.discard(file)
        if not lease.files:
            del self._leases[lease.holder]

    def _advance(self, now: float) -> float:
        """Return the latest time so far, which is `now` unless that lies before it."""
        if not math.isfinite(now):
            raise ValueError(f"now must be a finite number of seconds, got {now!r}")
        if now > self._now:
            self._now = now
        return self._now
