"""`Grantor`: the interface of landlords. `LandlordLease`: the lease of any of them.

The work is divided as in Jini. The lease is the holder's object: it has a cookie, which identifies
it to its landlord, and passes every request on. The landlord has the cookies and the resources, and
no lease objects. So a program with leases of its own, such as rows of a database, implements
`Grantor` and hands out `LandlordLease`: `LeaseBatch` and `RenewalManager` work with it.
"""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from leasehold.basics.durations import ANY, Duration, DurationLike, Requested
from leasehold.clock import SYSTEM_CLOCK, Clock
from leasehold.leases.holder_view import Margin
from leasehold.leases.lease import Lease, Outcome

R_contra = TypeVar("R_contra", contravariant=True)
T = TypeVar("T")


class BatchResult(NamedTuple):
    """The outcome of each entry of a batch; `outcomes` has the order of the request."""

    cookies: Sequence[Hashable]
    outcomes: Sequence[Outcome]

    @property
    def failures(self) -> list[tuple[Hashable, BaseException]]:
        """Every failure, with its lease."""
        pairs = zip(self.cookies, self.outcomes, strict=True)
        return [(cookie, out) for cookie, out in pairs if isinstance(out, BaseException)]


@runtime_checkable
class Grantor(Protocol[R_contra]):
    """Grants leases on resources of type R, and renews and cancels them by their cookies.

    `Landlord` is one. A class of your own needs these methods, which may be coroutine methods; if
    it derives from `Grantor`, it inherits `renew_all` and `cancel_all`. A method that fails changes
    nothing. It raises `UnknownLease` for a cookie without a live lease, and `LeaseDenied` for a
    request that it refuses.
    """

    @property
    @abstractmethod
    def name(self) -> Hashable:
        """The name of the grantor in leases: two leases with equal names and cookies are equal."""
        ...

    @abstractmethod
    def grant(self, resource: R_contra, duration: DurationLike = ANY) -> Lease | Awaitable[Lease]:
        """Lease `resource` out, for `duration` at most; return a `LandlordLease`, or another one.

        The new term begins after this call, never before.
        """
        ...

    @abstractmethod
    def renew(self, cookie: Hashable, duration: DurationLike) -> Duration | Awaitable[Duration]:
        """Begin a new term of at most `duration` from now; return its length. 0 ends the lease."""
        ...

    @abstractmethod
    def cancel(self, cookie: Hashable) -> Awaitable[None] | None:
        """End a lease now."""
        ...

    def renew_all(
        self, wants: Iterable[tuple[Hashable, DurationLike]]
    ) -> BatchResult | Awaitable[BatchResult]:
        """Renew many leases; each succeeds or fails independently.

        By default `renew` is called for each. An exception of this method means that the whole call
        has failed, with an unknown outcome for every lease.
        """
        pairs = list(wants)
        calls = [_attempt(self.renew, cookie, duration) for cookie, duration in pairs]
        return _result([cookie for cookie, _ in pairs], calls)

    def cancel_all(self, cookies: Iterable[Hashable]) -> BatchResult | Awaitable[BatchResult]:
        """End many leases; each succeeds, with the outcome 0.0, or fails independently.

        By default `cancel` is called for each.
        """
        names = list(cookies)
        return _result(names, [_attempt(self.cancel, cookie) for cookie in names])


def _attempt(method: Any, *args: object) -> Any:
    """Return the result of a method, which may be an awaitable, or its exception."""
    try:
        return method(*args)
    except Exception as error:  # noqa: BLE001  an outcome, paired with its lease
        return error


def _result(cookies: list[Hashable], calls: list[Any]) -> BatchResult | Awaitable[BatchResult]:
    if any(map(inspect.isawaitable, calls)):
        return _gathered(cookies, calls)
    return BatchResult(cookies, [0.0 if out is None else out for out in calls])


async def _gathered(cookies: list[Hashable], calls: list[Any]) -> BatchResult:
    outcomes = await asyncio.gather(*map(settled, calls), return_exceptions=True)
    return BatchResult(cookies, [0.0 if out is None else out for out in outcomes])


async def settled(result: T | Awaitable[T]) -> T:
    """Return the result of a method that may be a coroutine method."""
    return await result if inspect.isawaitable(result) else result


class LandlordLease(Lease):
    """A lease of a landlord in this process, which may be a `Grantor` of your own."""

    __slots__ = ("_cookie", "_landlord")

    def __init__(
        self,
        landlord: Grantor[Any],
        cookie: Hashable,
        granted: DurationLike,
        sent_at: float | None = None,
        *,
        clock: Clock | None = None,
        margin: Margin = 0.0,
    ) -> None:
        """Create the lease that `landlord` has by the name of `cookie`.

        Its first term of `granted` counts from `sent_at`, or else from now. `clock` is by default
        the landlord's attribute of that name, if it has one. The rest is as for `Lease`.
        """
        if clock is None:
            clock = getattr(landlord, "clock", SYSTEM_CLOCK)
        super().__init__(granted, sent_at=sent_at, clock=clock, margin=margin)
        self._landlord = landlord
        self._cookie = cookie

    @property
    def grantor(self) -> Hashable:
        return self._landlord.name

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    @property
    def batch_key(self) -> Hashable:
        return (LandlordLease, id(self._landlord))  # landlords need not be hashable

    async def ask_renew(self, requested: Requested) -> Duration:
        return await settled(self._landlord.renew(self._cookie, requested))

    async def ask_cancel(self) -> None:
        await settled(self._landlord.cancel(self._cookie))

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, Requested]]) -> Sequence[Outcome]:
        named = [(lease.cookie, requested) for lease, requested in wants]
        return (await settled(self._landlord.renew_all(named))).outcomes

    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Sequence[Outcome]:
        return (await settled(self._landlord.cancel_all([each.cookie for each in leases]))).outcomes
