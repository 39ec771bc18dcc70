"""A batch is composed again without the leases that were withdrawn before it was sent."""

import asyncio
from collections.abc import Sequence

from leasehold.errors import CallFailed, UnknownLease
from leasehold.leases.lease import Outcome
from leasehold.services.withdrawn_leases import COMPOSED, Withdrawn, send_permitted


class Sender:
    """Withdraws one more lease each time that a batch is about to be sent, as often as it says."""

    def __init__(self, times: int, *, is_raised: bool = True) -> None:
        self.batches: list[Sequence[str]] = []
        self._times = times
        self._is_raised = is_raised
        self._withdrawn: set[str] = set()

    def check(self, want: str) -> None:
        if want in self._withdrawn:
            raise UnknownLease(want)

    async def send(self, wants: Sequence[str]) -> Sequence[Outcome]:
        self.batches.append(wants)
        if len(self.batches) > self._times:
            return [10.0] * len(wants)
        self._withdrawn.add(wants[0])
        if self._is_raised:
            raise Withdrawn
        return [Withdrawn(), *[10.0] * (len(wants) - 1)]

    def run(self, wants: Sequence[str]) -> list[Outcome]:
        return asyncio.run(send_permitted(wants, self.check, self.send))


def test_the_others_are_sent_again_without_a_withdrawn_lease() -> None:
    sender = Sender(times=2)
    first, second, *others = sender.run("abcd")
    assert isinstance(first, UnknownLease)
    assert isinstance(second, UnknownLease)
    assert others == [10.0, 10.0]
    assert [list(batch) for batch in sender.batches] == [list("abcd"), list("bcd"), list("cd")]


def test_leases_that_were_sent_are_not_sent_again() -> None:
    sender = Sender(times=1, is_raised=False)
    first, *others = sender.run("abc")
    assert isinstance(first, UnknownLease)
    assert others == [10.0, 10.0]
    assert len(sender.batches) == 1


def test_nothing_is_sent_if_no_lease_may_be() -> None:
    sender = Sender(times=1)
    assert len(sender.run("a")) == 1
    assert len(sender.batches) == 1
    assert sender.run("") == []


def test_a_batch_that_is_withdrawn_too_often_fails_and_was_not_sent() -> None:
    sender = Sender(times=COMPOSED)
    outcomes = sender.run("abcdefgh")
    assert len(sender.batches) == COMPOSED
    assert [type(each) for each in outcomes[COMPOSED:]] == [CallFailed] * (8 - COMPOSED)
