"""Many leases of one landlord, renewed or cancelled in one call."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from leasehold.core.duration import ANY, DurationLike, Requested, check_requested
from leasehold.errors import LeaseBatchError
from leasehold.lease import Lease, Outcome, check_answer


async def renew_together(wants: Sequence[tuple[Lease, Requested]]) -> dict[Lease, BaseException]:
    """Renew leases of one landlord in one call; return those that failed, with their errors.

    A failure of the whole call is raised. Every lease's end is brought up to date either way.
    """
    return await _settle_all(wants, partial(wants[0][0].ask_renew_all, wants))


async def cancel_together(leases: Sequence[Lease]) -> dict[Lease, BaseException]:
    """Cancel leases of one landlord in one call; return those that failed, with their errors."""
    wants = [(lease, 0.0) for lease in leases]
    return await _settle_all(wants, partial(leases[0].ask_cancel_all, leases))


async def _settle_all(
    wants: Sequence[tuple[Lease, Requested]], ask: Callable[[], Awaitable[Sequence[Outcome]]]
) -> dict[Lease, BaseException]:
    sends = [(lease, lease.send(requested)) for lease, requested in wants]
    try:
        outcomes = await ask()
        if len(outcomes) != len(sends):
            raise ValueError(f"{len(sends)} leases were sent, but {len(outcomes)} outcomes came")
    except BaseException as error:
        for lease, send in sends:
            lease.settle(send, error)
        raise
    failures: dict[Lease, BaseException] = {}
    for (lease, send), answer in zip(sends, outcomes, strict=True):
        outcome = _checked(answer)
        lease.settle(send, outcome)
        if isinstance(outcome, BaseException):
            failures[lease] = outcome
    return failures


def _checked(outcome: Outcome) -> Outcome:
    """Turn an answer that is no length of time into the failure of its lease alone."""
    if isinstance(outcome, BaseException):
        return outcome
    try:
        return check_answer(outcome)
    except (TypeError, ValueError) as error:
        return error


L = TypeVar("L", bound=Lease)


class LeaseBatch:
    """Leases of one landlord, with the duration that is wanted for each."""

    def __init__(self, leases: Mapping[L, DurationLike] | None = None) -> None:
        if not isinstance(leases, Mapping | None):
            raise TypeError(f"leases must be a mapping of leases to durations, not {leases!r}")
        self._wanted: dict[Lease, Requested] = {}
        for lease, duration in (leases or {}).items():
            self.add(lease, duration)

    def add(self, lease: Lease, duration: DurationLike = ANY) -> None:
        """Add a lease, or change the duration wanted for it. ValueError: of another landlord."""
        if not isinstance(lease, Lease):
            raise TypeError(f"a batch holds leases, not {lease!r}")
        requested = check_requested(duration)
        if not self.can_hold(lease):
            other = next(iter(self._wanted))
            raise ValueError(f"{lease!r} and {other!r} cannot be renewed in one call")
        self._wanted.pop(lease, None)  # of two equal leases the one added last is kept
        self._wanted[lease] = requested

    def can_hold(self, lease: Lease) -> bool:
        """Whether the lease may be added: it is of the same landlord as those that are in."""
        return not self._wanted or next(iter(self._wanted)).can_batch(lease)

    def remove(self, lease: Lease) -> None:
        """Take a lease out, and leave it alone. KeyError: it is not in the batch."""
        del self._wanted[lease]

    async def renew_all(self) -> None:
        """Renew all in one call.

        Those that fail leave the batch and come back in one `LeaseBatchError`. If the whole call
        fails its error is raised, and the batch is as it was.
        """
        if self._wanted:
            wants = list(self._wanted.items())
            failures = await renew_together(wants)
            for lease, requested in wants:
                if requested == 0.0:  # it has ended, as was asked
                    self._wanted.pop(lease, None)
            self._expel(failures)

    async def cancel_all(self) -> None:
        """End all in one call; failures as in `renew_all`. Leases that ended leave the batch."""
        if self._wanted:
            leases = list(self._wanted)
            failures = await cancel_together(leases)
            for lease in leases:
                self._wanted.pop(lease, None)
            self._expel(failures)

    def _expel(self, failures: Mapping[Lease, BaseException]) -> None:
        for lease in failures:
            self._wanted.pop(lease, None)
        if failures:
            raise LeaseBatchError(failures)

    def __len__(self) -> int:
        return len(self._wanted)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._wanted)

    def __contains__(self, lease: object) -> bool:
        return lease in self._wanted

    def __getitem__(self, lease: Lease) -> Requested:
        """The duration that is wanted for a lease."""
        return self._wanted[lease]

    def __repr__(self) -> str:
        return f"<LeaseBatch of {len(self)}>"
