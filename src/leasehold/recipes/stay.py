"""`Stay`: one acquisition, from asking for a place until it was left; and how one is asked for."""

from collections.abc import Callable
from typing import Generic, TypeVar

from leasehold.engine.values import KeyValue
from leasehold.errors import LeaseholdError, LockDenied, SessionExpired
from leasehold.recipes.errand import Errand
from leasehold.recipes.line import Line, Place
from leasehold.recipes.line_guard import LineGuard
from leasehold.recipes.lines import Lines
from leasehold.recipes.naming import text_of
from leasehold.stored_errors import fresh

G = TypeVar("G", bound=LineGuard)


class Stay(Errand[G], Generic[G]):
    """A place that is waited in until it is let in, and held until it is left."""

    def __init__(
        self,
        lines: Lines,
        line: Line,
        value: bytes,
        make_guard: Callable[[Place], G],
        *,
        only_asks: bool,
        in_turn: bool = False,
    ) -> None:
        """With `in_turn` the client has one place in this line at a time; others wait here."""
        self._place = Place(lines, line, value)
        self._make_guard = make_guard
        self._only_asks = only_asks
        self._in_turn = in_turn
        self._waits_for_turn = False
        super().__init__(lines)

    def denied(self, waited_s: float) -> Exception:
        """Make the error for whoever has waited long enough."""
        place = self._place
        name = text_of(place.line.name)
        if self._waits_for_turn:
            return LockDenied(name, self._lines.who, waited_s, is_own=True)
        if not place.created:
            why = self._lines.engine.trouble
            said = f"{name!r}: no answer within {waited_s:.3g} s"
            return TimeoutError(f"{said}: {why}" if why else said)
        first = next(iter(place.ahead.values()), None)
        return (
            LockDenied(name, waited_s=waited_s) if first is None else self._held_by(first, waited_s)
        )

    def _held_by(self, first: KeyValue, waited_s: float = 0.0) -> LockDenied:
        line = self._place.line
        is_own = self._lines.sessions.owns(first.lease)
        return LockDenied(text_of(line.name), line.who(first), waited_s, is_own=is_own)

    def _give_up(self) -> None:
        self._place.give_up()
        if self._waits_for_turn:
            self._task.cancel()

    async def _run(self) -> None:
        place = self._place
        if self._only_asks:
            try:
                ahead = await self._lines.patience.wait(place.ask(), None)
            except Exception as error:  # noqa: BLE001  the caller gets it, unless it is gone
                self._fail(error)  # reading has left nothing that must be cleared away
                return
            if not place.line.lets_in(ahead):
                raise self._held_by(ahead[0])
        if not self._in_turn:
            await self._stay()
            return
        self._waits_for_turn = True
        async with self._lines.turn(place.line.prefix):
            self._waits_for_turn = False
            await self._stay()

    async def _stay(self) -> None:
        place = self._place
        if not self.is_wanted:
            return
        try:
            try:
                await place.join()
                await self._wait()
            except Exception as error:  # noqa: BLE001  whoever waits is told before it is left
                self._fail(error)
                return
            if self.is_wanted:
                self._succeed(self._make_guard(place))
                await self._hold()
        finally:
            await place.leave()

    async def _wait(self) -> None:
        """Wait until it is let in."""
        place, is_fresh = self._place, True
        while place.is_wanted:
            if place.loss is not None:
                raise fresh(place.loss)
            if place.line.lets_in(list(place.ahead.values())):
                if is_fresh:
                    return
                is_fresh = True
                await place.look()
            elif self._only_asks:
                raise self.denied(0.0)
            else:
                await place.change()
                is_fresh = False

    async def _hold(self) -> None:
        """Follow its own key until it is left, or over."""
        place = self._place
        while place.is_wanted and place.loss is None:
            try:
                await place.change()
            except SessionExpired as expired:
                place.lose(expired, None)
            except (LeaseholdError, OSError) as error:
                lease = place.session.lease.id
                place.lose(SessionExpired(lease, f"it cannot be watched: {error}"), error)


async def stay(
    lines: Lines,
    line: Line,
    value: bytes,
    make_guard: Callable[[Place], G],
    timeout_s: float | None,
    *,
    in_turn: bool = False,
) -> G:
    """Be let in: `LockDenied` if that takes longer than allowed, which leaves nothing behind."""
    lines.check_call()
    only_asks = timeout_s == 0.0
    one = Stay(lines, line, value, make_guard, only_asks=only_asks, in_turn=in_turn)
    limit_s = lines.patience.timeout_s if only_asks else timeout_s
    if await one.wait(limit_s):
        guard = one.take()
        if guard.is_held:
            return guard
        one.abandon()  # it came too late
        loss = guard.as_lost()
        raise SessionExpired(loss.lease, loss.why)
    assert limit_s is not None, "it is waited for as long as it takes"
    denied = one.denied(limit_s)
    one.abandon()
    raise denied
