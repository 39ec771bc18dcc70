"""`Holding` against a grantor that is asked over a network at its worst.

The law: at no time does the holder trust the lease longer than the grantor keeps it. The grantor's
end moves when it *handles* a request; requests on one connection are handled in the order in which
they were sent, some of them late, some never. Answers come in any order, or not at all: then the
request fails indefinitely, whether or not it was handled, and whether or not it will be yet.
"""

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold.basics.durations import ANY, FOREVER, NEVER, Duration, Requested, duration_of
from leasehold.leases.holder_view import Holding, Send
from tests.property.support import effort

EPS: Final = 1e-6


@dataclass(eq=False)
class Request:
    """A request under way, with what became of it at the grantor."""

    send: Send
    requested: Requested
    answer: Duration | str | None = None
    """A length, "denied", "unknown", or None while it was not handled."""


class NaiveGrantor:
    """Ends by the rules of a renewal: from now, never shorter unless that was asked for."""

    def __init__(self, end: float, maximum: float) -> None:
        self.end = end
        self.maximum = maximum
        self.over = False

    def handle(self, requested: Requested, now: float) -> Duration | str:
        self.over = self.over or self.end <= now
        if self.over:
            return "unknown"
        if requested == 0.0:
            self.over, self.end = True, now
            return 0.0
        asked = requested if isinstance(requested, float) else NEVER
        end = now + min(asked, self.maximum)
        self.end = max(end, min(self.end, now + asked))
        return duration_of(self.end - now)


durations: st.SearchStrategy[Requested] = st.sampled_from(
    [0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 60.0, ANY, FOREVER, 0.0]
)
steps = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 3.0])


class HoldingMachine(RuleBasedStateMachine):
    """True time is the grantor's; the holder's clock may run slower by up to its margin."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waiting: list[Request] = []  # sent, not handled: in the order of sending
        self.ended_elsewhere = False
        self.told = False  # by the grantor, that the lease is over
        self.open: list[Request] = []  # sent, not settled at the holder

    @initialize(
        granted=st.sampled_from([1.0, 5.0, 10.0, NEVER]),
        delay=steps,
        maximum=st.sampled_from([5.0, 20.0, NEVER]),
        margin=st.sampled_from([0.0, 0.0, 0.01, 0.2]),
    )
    def grant(self, granted: float, delay: float, maximum: float, margin: float) -> None:
        self.rate = 1.0 - margin  # of the holder's clock: the slowest that the margin allows for
        self.grantor = NaiveGrantor(delay + granted, maximum)
        self.now = delay
        self.holding = Holding(0.0, duration_of(granted), margin)

    @property
    def holder_now(self) -> float:
        return self.now * self.rate

    @rule(seconds=steps)
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(wants=st.lists(durations, min_size=1, max_size=3))
    def ask(self, wants: list[Requested]) -> None:
        for requested in wants:
            request = Request(self.holding.send(requested, self.holder_now), requested)
            self.waiting.append(request)
            self.open.append(request)

    @precondition(lambda self: self.waiting)
    @rule(how_many=st.integers(1, 3))
    def handle(self, how_many: int) -> None:
        for request in self.waiting[:how_many]:
            request.answer = self.grantor.handle(request.requested, self.now)
        del self.waiting[:how_many]

    @precondition(lambda self: self.waiting)
    @rule()
    def deny(self) -> None:
        """The policy refuses the oldest: a definite failure without effect."""
        request = self.waiting.pop(0)
        request.answer = "denied" if not self.grantor.over else "unknown"

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def lose_request(self, data: st.DataObject) -> None:
        """A request that never arrives; the holder learns nothing yet."""
        self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))

    @precondition(lambda self: any(request.answer is not None for request in self.open))
    @rule(data=st.data())
    def answer_any(self, data: st.DataObject) -> None:
        """Some of the answers arrive, in whatever order."""
        answered = [request for request in self.open if request.answer is not None]
        count = data.draw(st.integers(1, len(answered)))
        for request in data.draw(st.permutations(answered))[:count]:
            self.answer_one(request)
            self.the_holder_never_trusts_longer_than_the_grantor_keeps()

    def answer_one(self, request: Request) -> None:
        self.open.remove(request)
        match request.answer:
            case "denied":
                self.holding.failed(request.send, definite=True)
            case "unknown":
                self.holding.failed(request.send, definite=True)
                self.holding.end_at(self.holder_now)
                self.told = True
            case str() | None:
                raise AssertionError(request.answer)
            case granted:
                self.holding.answered(request.send, granted)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """Any request fails indefinitely: it may have been handled, or be handled later."""
        request = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.holding.failed(request.send, definite=False)

    @precondition(lambda self: any(isinstance(each.answer, float) for each in self.open))
    @rule()
    def end_elsewhere(self) -> None:
        """Somebody else who knows the cookie ends it: the holder cannot know until it is told."""
        self.grantor.over, self.ended_elsewhere = True, True

    @invariant()
    def the_holder_never_trusts_longer_than_the_grantor_keeps(self) -> None:
        if not hasattr(self, "grantor"):
            return
        trusted_until = self.holding.end / self.rate  # in true time
        if trusted_until > self.now + EPS and (self.told or not self.ended_elsewhere):
            assert trusted_until <= self.grantor.end + EPS
            assert not self.grantor.over
        assert self.holding.remaining_s(self.holder_now) >= 0.0

    def teardown(self) -> None:
        """With all settled and one more renewal that works, nothing of the past holds it down."""
        if not hasattr(self, "grantor"):
            return
        self.handle(len(self.waiting))
        for request in self.open:
            self.holding.failed(request.send, definite=False)
        if self.grantor.over or self.grantor.end <= self.now:
            return
        send = self.holding.send(FOREVER, self.holder_now)
        granted = self.grantor.handle(FOREVER, self.now)
        assert not isinstance(granted, str)
        self.holding.answered(send, granted)
        expected = self.grantor.end * self.rate
        note(f"ends at {expected}, trusted until {self.holding.end}")
        assert self.holding.end == pytest.approx(expected)


TestHolding = HoldingMachine.TestCase
TestHolding.settings = effort(400, steps=30)


@given(
    granted=st.sampled_from([5.0, 10.0]),
    margin=st.sampled_from([0.0, 0.2]),
    wants=st.lists(
        st.tuples(durations, st.sampled_from(["handled", "handled", "late", "lost", "denied"])),
        min_size=2,
        max_size=5,
    ),
    ended_after=st.none() | st.integers(0, 4),
    data=st.data(),
)
@effort(800)
def test_requests_overtaken_by_answers_of_later_ones(
    granted: float,
    margin: float,
    wants: list[tuple[Requested, str]],
    ended_after: int | None,
    data: st.DataObject,
) -> None:
    """Several requests at once; then their fates are heard of in any order, or never."""
    machine = HoldingMachine()
    machine.grant(granted, 0.0, NEVER, margin)
    for index, (requested, fate) in enumerate(wants):
        machine.pass_time(0.01)
        machine.ask([requested])
        machine.pass_time(0.01)
        match fate:
            case "handled":
                machine.handle(len(machine.waiting))
            case "denied":
                machine.handle(len(machine.waiting) - 1)
                machine.deny()
            case "lost":
                machine.waiting.pop()
        if index == ended_after:
            machine.end_elsewhere()
    machine.handle(len(machine.waiting))
    for request in data.draw(st.permutations(machine.open)):
        if request.answer is None or data.draw(st.sampled_from([False, False, True])):
            machine.open.remove(request)
            machine.holding.failed(request.send, definite=False)
        else:
            machine.answer_one(request)
        machine.the_holder_never_trusts_longer_than_the_grantor_keeps()
    machine.teardown()
