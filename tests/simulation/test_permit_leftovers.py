"""Whatever befalls a grant or a revocation, nothing is left behind, and nothing comes back to life.

A message is lost, done without an answer, or done late, each message of a call in turn; or the
caller gives up, at one moment after the other.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leasehold.errors import CallFailed, LeaseholdError, UnknownLease
from leasehold.locks import permit_grants
from leasehold.locks.permits import Permits
from tests.simulation.permit_stage import NAMES, Stage

TTL_S = 10.0
LONG_S = 100_000.0
SETTLED_S = 30.0
MESSAGES = 12
"""More than any call sends."""

KINDS = ["unsent", "unanswered", "late"]
OWN = 0x7A11
"""A lease of the subject's own."""

Call = Callable[[Permits], Coroutine[Any, Any, None]]


async def grant(permits: Permits) -> None:
    await permits.grant(*NAMES, ["new"], LONG_S)


async def grant_under(permits: Permits) -> None:
    await permits.grant(*NAMES, ["new"], lease=OWN)


async def revoke(permits: Permits) -> None:
    await permits.revoke(*NAMES)


CALLS = [grant, grant_under, revoke]
BEFORE = ["nothing", "own lease", "given lease"]


class Play(Stage):
    """With what there is before the call."""

    def __init__(self, before: str) -> None:
        super().__init__()
        self.server.stragglers.late_s = (0.1, 0.5)
        self.wait(self.admin.host.start(self._prepare, before))

    async def _prepare(self, before: str) -> None:
        permits = self.admin.permits
        await self.admin.line.grant(LONG_S, lease=OWN)
        if before == "own lease":
            await permits.grant(*NAMES, ["old"], LONG_S)
        elif before == "given lease":
            await permits.grant(*NAMES, ["old"], lease=OWN)

    def is_clean(self) -> None:
        """Find what has no use."""
        assert not self.useless_leases() - {OWN}
        assert OWN in self.server.lease_ids(), "which is the subject's"
        assert not self.open_calls()

    def rights(self) -> frozenset[str]:
        permit = self.do(self.gate, lambda permits: permits.get(*NAMES))
        return frozenset() if permit is None else permit.rights


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_whichever_message_is_lost(kind: str, call: Call, before: str) -> None:
    failures = 0
    for number in range(1, MESSAGES):
        with Play(before) as play:
            old = play.rights()
            line = play.admin.line
            line.befalls, line.befalls_in = kind, number
            try:
                play.do(play.admin, call)
                has_failed = False
            except ConnectionError:
                has_failed = True
            failures += has_failed
            was_befallen = not line.befalls_in
            line.befalls_in = 0
            play.run_for(SETTLED_S)
            play.is_clean()
            _check_rights(play.rights(), old, call, has_failed=has_failed)
            if not was_befallen:
                assert not has_failed
                break
    else:
        pytest.fail("it sends more messages than that")
    assert failures or (call is revoke and before == "nothing"), (
        "nothing was lost: this shows nothing"
    )


def _check_rights(
    rights: frozenset[str], old: frozenset[str], call: Call, *, has_failed: bool
) -> None:
    done = frozenset() if call is revoke else frozenset({"new"})
    if not has_failed:
        assert rights == done
    elif call is grant:
        assert rights in (old, frozenset()), "what it has begun is ended"
    else:
        assert rights in (old, done)


@pytest.mark.parametrize("slow_s", [0.0, 2.0])
@pytest.mark.parametrize("call", [grant, grant_under])
def test_what_was_given_up_does_not_come_back_after_a_revocation(call: Call, slow_s: float) -> None:
    was_late = 0
    for number in range(1, MESSAGES):
        with Play("nothing") as play:
            line = play.admin.line
            line.befalls, line.befalls_in = "late", number
            try:
                play.do(play.admin, call)
            except ConnectionError:
                was_late += 1
            line.befalls_in = 0
            line.sends_late = {"revoke": slow_s, "delete": slow_s}  # what takes it back
            play.do(play.admin, revoke)
            assert not play.is_there()
            for _ in range(100):
                play.run_for(0.2)
                assert not play.is_there(), "it has come back to life"
            play.is_clean()
    assert was_late >= 2


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_left_whenever_the_caller_gives_up(call: Call, before: str) -> None:
    cancelled = 0
    for tick in range(1, 200):
        with Play(before) as play:
            old = play.rights()
            task = play.begin(play.admin, call)
            play.run_for(tick * 0.004)
            was_done = task.done()
            task.cancel()
            play.sim.run_until(task.done, within=10.0)
            cancelled += task.cancelled()
            play.run_for(SETTLED_S)
            play.is_clean()
            _check_rights(play.rights(), old, call, has_failed=task.cancelled())
            if was_done:
                break
    assert cancelled >= 2


def test_a_grant_without_an_answer_in_time_is_taken_back() -> None:
    with Play("nothing") as play:
        play.admin.line.answers_late["txn"] = 60.0
        with pytest.raises(TimeoutError):
            play.do(play.admin, lambda permits: permits.grant(*NAMES, ["new"], LONG_S, timeout=1.0))
        play.run_for(SETTLED_S)
        play.is_clean()
        assert not play.is_there()


def test_closing_the_client_leaves_the_permits_that_were_granted() -> None:
    with Play("own lease") as play:
        lease = play.do(play.admin, lambda permits: permits.get(*NAMES))
        assert lease is not None
        assert play.asks(play.admin, "old")
        play.wait(play.admin.host.start(play.admin.client.close))
        play.run_for(SETTLED_S)
        assert play.rights() == {"old"}
        assert len(play.admin.permits.cache) == 0


def test_a_lease_that_ends_while_a_permit_is_granted_under_it_is_unknown() -> None:
    with Play("nothing") as play:
        play.admin.line.answers_late["range"] = 2.0
        granting_it = play.begin(play.admin, grant_under)
        play.run_for(1.0)
        play.wait(play.gate.host.start(play.gate.line.revoke, OWN))
        with pytest.raises(UnknownLease):
            play.wait(granting_it)
        play.run_for(SETTLED_S)
        assert not play.open_calls()


def test_two_who_grant_at_once_replace_each_other_and_leave_one_lease() -> None:
    with Play("nothing") as play:
        users = [play.admin, play.subject, play.gate]
        tasks = [play.begin(user, grant) for user in users * 4]
        play.sim.run_until(lambda: all(task.done() for task in tasks), within=60.0)
        for task in tasks:
            task.result()
        play.run_for(SETTLED_S)
        play.is_clean()
        assert len(play.server.lease_ids() - {OWN}) == 1


def test_who_is_always_too_late_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permit_grants, "TRIES", 1)
    with Play("own lease") as play:
        for call in (grant, grant_under, revoke):
            play.admin.line.answers_late["range"] = 2.0
            task = play.begin(play.admin, call)
            play.run_for(1.0)
            play.do(play.gate, lambda permits: permits.grant(*NAMES, ["old"], LONG_S))
            with pytest.raises(CallFailed, match="changed by others 1 times meanwhile"):
                play.wait(task)
            play.run_for(SETTLED_S)
            play.is_clean()
            assert play.rights() == {"old"}


def test_after_the_end_of_the_client_nothing_is_begun() -> None:
    with Play("nothing") as play:
        play.wait(play.admin.host.start(play.admin.client.close))
        for call in (grant, grant_under, revoke):
            with pytest.raises(LeaseholdError):
                play.do(play.admin, call)
        play.is_clean()
