"""Compares what the renewal service does with what clients have asked for, in true time.

The oracle keeps its own model of every set, made of the calls and their answers. A call that had no
answer may have been executed or not: the model allows both, or gives up the set. It checks:

- A renewal is sent only by a server that owns the shard of the set, while the set lives, while the
  lease is a member, before its desired end, and for no longer than that.
- A shard is owned by at most one server at a time, by the clock of each.
- A lease does not lapse if its landlord could be reached for long enough.
- A set does not end earlier than was granted.
- Events of one set and kind have the numbers 1, 2, ...; one number is one event, and one failure is
  one number. A listener receives none of them before an earlier one, and none is left out.
- Nothing is sent to a listener that was replaced or cleared, and no failure of a removed lease.
- A set has at most one warning for each term and listener, and not earlier than asked for.
- The members of a set are those that the calls have left in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.leases.lease_clock import GRACE_S
from leasehold.renewal.references import LeaseReference
from leasehold.renewal.state import SetEvent
from leasehold.testing import Host, Simulation
from leasehold.wire import renewal_pb2 as pb
from tests.simulation.oracle import Violation

LOOK_S: Final = 0.1

SLACK_S: Final = 0.1
"""For rounding to milliseconds, and calls of the oracle every `LOOK_S`."""

DRIFT: Final = 0.002
"""For clocks that run at different speeds, as a part of the length of time."""

KEEPING_S: Final = 4.0
"""How long a landlord must have been reachable before the end of a lease: a request of 1 s that
began just before, the wait of 1 s before the next one, and that one."""

AFTER_START: Final = 0.6
"""As part of a term, how much longer that is if the first renewal after a set was loaded may have
failed. The end of the lease is not known then: the retries are those of a full term."""

COMPOSED_S: Final = 1.0
"""How long before it is sent a request may have been composed: it may wait for a connection."""

HALTED_S: Final = 2.0
"""How long a server that was stopped may be late."""

ANSWER_S: Final = 0.5
"""How long the answer to a renewal may be on its way."""

UNKNOWN_S: Final = 30.0
"""How long a call without an answer may still be executed."""


class Membership(Enum):
    """What the calls say about a lease in a set."""

    IN = "in"
    OUT = "out"
    LAPSED = "in, and its lease has lapsed"
    """It leaves with an event, as soon as the service finds out."""
    UNKNOWN = "unknown"


@dataclass(eq=False)
class GrantedLease:
    """A lease, as its landlord has it."""

    name: str
    landlord: Host
    most_s: float
    end: float
    is_cancelled: bool = False
    """It fails definitely at its next renewal."""
    lapsed_at: float | None = None
    renewed_at: float = 0.0

    def is_alive(self, now: float) -> bool:
        return not self.is_cancelled and self.end > now


@dataclass(eq=False)
class MemberModel:
    """A lease in a set, by the calls."""

    lease: GrantedLease
    earliest: float
    """The desired end is between these two."""
    latest: float
    membership: Membership
    changed_at: float
    bad_at: float
    """When it could not be renewed for the last time."""
    bad_from: float = 0.0
    """When that time began."""
    unreachable_at: float = 0.0
    """When its landlord was unreachable for a server, for the last time."""
    adds: int = 1
    """How often it was added: one that has left becomes a member again."""
    first_end: float = 0.0
    """The end of the term that it was added with, if the service was told so too late."""


@dataclass(eq=False)
class EventsModel:
    """The events of a set of one kind, and the listeners that were set."""

    is_exact: bool = True
    """Whether there always was a listener, so that all events are delivered."""
    events: dict[int, bytes] = field(default_factory=dict)
    """The payloads of all events that were delivered, by number."""
    failed: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of failures, by lease."""
    stored: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of events that are or were in a mailbox."""
    received: dict[str, set[int]] = field(default_factory=dict)
    """The numbers that each listener has received."""
    retired: set[str] = field(default_factory=set)
    """Listeners that were replaced or cleared."""
    listeners: list[str] = field(default_factory=list)
    """The listeners that may be set."""
    most_warning_s: float = 0.0
    """The longest `min_warning` of all."""
    registrations: int = 0


@dataclass(eq=False)
class SetModel:
    """A set, by the calls."""

    id: str
    earliest: float
    """The end is between these two, in true time."""
    latest: float
    members: dict[str, MemberModel] = field(default_factory=dict)
    events: dict[SetEvent, EventsModel] = field(
        default_factory=lambda: {kind: EventsModel() for kind in SetEvent}
    )
    terms: int = 1
    """Renewals, with those of unknown outcome, and the first term."""
    unknown_until: float = 0.0
    """Until then a renewal may be executed that had no answer."""
    is_uncertain: bool = False
    """A call had no answer and may be executed at any time: its members are unknown."""
    ended_at: float | None = None
    """It was cancelled, or was found to have ended."""
    loaded_at: float = 0.0
    serving: Any = None
    """The record in memory of the server that serves it."""

    def may_live(self, now: float) -> bool:
        return self.ended_at is None and now < self.latest

    def lives(self, now: float) -> bool:
        return self.ended_at is None and now < self.earliest and not self.is_uncertain


class Server(Protocol):
    """A server with the renewal service: `renewal_world` has it."""

    host: Host

    def owns(self, shard: int) -> bool:
        """Whether it owns a shard now, by its clock."""
        ...

    def record_of(self, set_id: str) -> Any:
        """Return the record of a set that it serves, or None."""
        ...

    def shard_of(self, set_id: str) -> int: ...


class World(Protocol):
    """The part of the world that the oracle looks at."""

    @property
    def servers(self) -> Sequence[Any]:
        """All servers."""
        ...

    def is_cut(self, one: Host, other: Host) -> bool:
        """Whether messages between two hosts are lost."""
        ...

    def is_overloaded(self, landlord: Host) -> bool:
        """Whether a landlord answers no calls."""
        ...


class RenewalOracle:
    """Observes all servers, landlords and listeners."""

    def __init__(self, sim: Simulation, world: World) -> None:
        self._sim = sim
        self._world = world
        self.sets: dict[str, SetModel] = {}
        self.leases: dict[str, GrantedLease] = {}
        self.min_warnings: dict[str, float] = {}
        self._halted_at = -HALTED_S
        """When a server was stopped for the last time."""
        self.sent = 0
        self.delivered = 0
        self.lapses = 0
        self.repeated = 0
        self.gaps = 0
        self.violations: list[str] = []

    def start(self) -> None:
        """Begin to look at everything, again and again."""
        self.look()
        self._sim.after(LOOK_S, self.start)

    def fail(self, why: str) -> None:
        """Report a violation outside all hosts, where no code under test can catch it."""
        self.violations.append(why)
        self._sim.record(f"VIOLATION {why}")

        def report() -> None:
            raise Violation(why)

        self._sim.after(0.0, report)

    # Renewals.

    def sends(self, server: Server, wants: Iterable[tuple[str, str, float]]) -> None:
        """See renewals, when they are sent: sets, leases and requested terms."""
        now = self._sim.now
        for set_id, name, requested_s in wants:
            self.sent += 1
            why = self._why_not(server, set_id, name, requested_s, now)
            if why:
                self.fail(f"{server.host.name} renews {name} of set {set_id[:4]}, {why}")

    def _why_not(
        self, server: Server, set_id: str, name: str, requested_s: float, now: float
    ) -> str:
        shard = server.shard_of(set_id)
        if not server.owns(shard):
            return f"and does not own shard {shard:02x}"
        if others := [each for each in self._owners(shard) if each is not server]:
            return f"and {others[0].host.name} owns shard {shard:02x}"
        model = self.sets.get(set_id)
        if model is None:
            return ""
        if model.ended_at is not None and now > model.ended_at:
            return "which was cancelled or had ended"
        if now > model.latest + _slack_s(model.latest, now):
            return f"which ended {now - model.latest:.3f} s ago at the latest"
        member = model.members.get(name)
        if member is None or model.is_uncertain:
            return ""
        late_s = now - member.latest
        if now < max(self._halted_at + HALTED_S, member.changed_at + COMPOSED_S):
            return ""  # the request may have been composed before that
        if member.membership is Membership.OUT:
            return "which was removed"
        if late_s > COMPOSED_S:
            return f"{late_s:.3f} s after its desired end"
        if requested_s != float("inf") and requested_s > COMPOSED_S - late_s + DRIFT * requested_s:
            return f"for {requested_s:.3f} s, and its desired end is in {-late_s:.3f} s"
        return ""

    def _owners(self, shard: int) -> list[Any]:
        return [server for server in self._world.servers if server.owns(shard)]

    # Everything that is seen by looking.

    def look(self) -> None:
        """Look at all shards, sets and leases."""
        now = self._sim.now
        self._look_at_shards()
        is_halted = any(server.host.halted and not server.host.down for server in self._servers)
        for model in self.sets.values():
            if not model.may_live(now - UNKNOWN_S):
                continue
            if is_halted:
                self._halted_at = now
                model.latest += LOOK_S  # lease time may stand still
                if model.may_live(now):
                    model.latest = max(model.latest, now + GRACE_S + LOOK_S)
            self._look_at_set(model, now)

    @property
    def _servers(self) -> Sequence[Any]:
        return self._world.servers

    def _look_at_shards(self) -> None:
        for shard in range(max((server.shard_count for server in self._servers), default=0)):
            owners = self._owners(shard)
            if len(owners) > 1:
                names = " and ".join(owner.host.name for owner in owners)
                self.fail(f"shard {shard:02x} is owned by {names}")

    def _look_at_set(self, model: SetModel, now: float) -> None:
        found = [
            (server, record)
            for server in self._servers
            if (record := server.record_of(model.id)) is not None
        ]
        server, record = found[0] if found else (None, None)
        served = None if record is None else record.state
        if served is not model.serving:
            model.serving, model.loaded_at = served, now
        for member in model.members.values():
            lease = member.lease
            if not self._is_reachable(lease.landlord):
                member.unreachable_at = now
            if server is None or not self._can_renew(server, lease.landlord):
                if now > member.bad_at + 2 * LOOK_S:
                    member.bad_from = now
                member.bad_at = now
            if lease.lapsed_at is None and not lease.is_alive(now):
                lease.lapsed_at = now
                self.lapses += 1
            if lease.lapsed_at is not None and member.membership is Membership.IN:
                self._check_lapse(model, member, lease.lapsed_at)

    def _can_renew(self, server: Any, landlord: Host) -> bool:
        hosts = (server.host, landlord)
        if any(host.halted for host in hosts) or self._world.is_cut(*hosts):
            return False
        return not self._world.is_overloaded(landlord)

    def _is_reachable(self, landlord: Host) -> bool:
        is_up = not landlord.halted and not self._world.is_overloaded(landlord)
        return is_up and not any(self._world.is_cut(each.host, landlord) for each in self._servers)

    def _check_lapse(self, model: SetModel, member: MemberModel, at: float) -> None:
        lease = member.lease
        if member.earliest <= at:
            return
        member.membership = Membership.LAPSED
        if lease.is_cancelled or not model.lives(at):
            return
        if at < member.changed_at + KEEPING_S or lease.end <= member.first_end:
            return
        if member.bad_from - ANSWER_S < lease.renewed_at < member.bad_at + ANSWER_S:
            return  # the answer to its last renewal may have come too late, or not at all
        need_s = KEEPING_S
        if model.loaded_at - 2 * LOOK_S < member.unreachable_at:
            need_s += AFTER_START * lease.most_s
        good_s = at - max(member.bad_at, model.loaded_at)
        if good_s > need_s:
            self.fail(
                f"{lease.name} of set {model.id[:4]} has lapsed, and its landlord was reachable "
                f"for {good_s:.1f} s"
            )

    # Events.

    def sends_events(
        self, server: Server, target: EventTarget, events: Sequence[RemoteEvent]
    ) -> None:
        """See events, when they are sent."""
        for event in events:
            model = self.sets.get(event.source)
            if model is None or model.is_uncertain:
                continue
            kind = SetEvent(event.kind)
            if target.id in model.events[kind].retired:
                self.fail(
                    f"{server.host.name} sends event {event.number} of set {event.source[:4]} to "
                    f"{target.id}, which was replaced or cleared"
                )

    def stored(self, mailbox: str, events: Sequence[RemoteEvent]) -> None:
        """See that events are in a mailbox, and will be read later."""
        for event in events:
            model = self.sets.get(event.source)
            if model is not None:
                known = model.events[SetEvent(event.kind)]
                known.stored.setdefault(mailbox, set()).add(event.number)
                if known.events.setdefault(event.number, event.payload) != event.payload:
                    self.fail(f"event {event.number} of set {model.id[:4]} is two different events")

    def received(self, target: str, events: Sequence[RemoteEvent]) -> None:
        """See events, when a listener has received them."""
        for event in events:
            self.delivered += 1
            model = self.sets.get(event.source)
            if model is not None:
                self._receive(model, model.events[SetEvent(event.kind)], target, event)

    def _receive(
        self, model: SetModel, events: EventsModel, target: str, event: RemoteEvent
    ) -> None:
        number = event.number
        what = f"event {SetEvent(event.kind).name} {number} of set {model.id[:4]}"
        if event.handback != target.encode():
            self.fail(f"{what}: listener {target} got handback {event.handback!r}")
        before = events.events.setdefault(number, event.payload)
        if before != event.payload:
            self.fail(f"{what} is two different events")
        received = events.received.setdefault(target, set())
        if number in received:
            self.repeated += 1
        elif received and number < max(received):
            self.fail(f"{what}: listener {target} has received event {max(received)} before")
        received.add(number)
        if events.is_exact and number > 1 and number - 1 not in events.events:
            self.fail(f"{what}: it is delivered before event {number - 1}, or that one is lost")
        if event.kind == SetEvent.RENEWAL_FAILURE:
            self._receive_failure(model, events, event, what)
        else:
            self._receive_warning(model, events, event, what)

    def _receive_failure(
        self, model: SetModel, events: EventsModel, event: RemoteEvent, what: str
    ) -> None:
        payload = pb.FailurePayload.FromString(event.payload)
        name = str(LeaseReference.decode(payload.reference).cookie)
        member = model.members.get(name)
        numbers = events.failed.setdefault(name, set())
        numbers.add(event.number)
        if member is not None and len(numbers) > member.adds:
            self.fail(f"{what}: failures {sorted(numbers)} are all of {name}")
        # One that was added again may have failed before that.
        if member is not None and member.membership is Membership.OUT and member.adds == 1:
            self.fail(f"{what}: {name} has failed after it was removed")

    def _receive_warning(
        self, model: SetModel, events: EventsModel, event: RemoteEvent, what: str
    ) -> None:
        most = events.registrations + model.terms
        if event.number > most:
            self.fail(f"{what}: there are {most} terms and listeners to be warned about")
        remaining_s = pb.WarningPayload.FromString(event.payload).remaining_ms / 1000.0
        most_s = events.most_warning_s  # a replacing listener gets those of its predecessor
        if remaining_s > most_s + SLACK_S:
            self.fail(f"{what}: sent {remaining_s:.3f} s before the end, asked for {most_s:.3f} s")

    # At the end, when there were no faults for a while.

    def check_members(self, model: SetModel, found: Iterable[str]) -> None:
        """Compare the members of a set with those that the calls have left in it."""
        now, names = self._sim.now, set(found)
        if not model.lives(now + SLACK_S):
            return
        for name, member in model.members.items():
            is_wanted = member.earliest > now + SLACK_S and member.lease.is_alive(now)
            if member.membership is Membership.IN and is_wanted and name not in names:
                self.fail(f"{name} is not in set {model.id[:4]}")
            is_over = member.membership is Membership.OUT or member.latest < now - SLACK_S
            lapsed_at = member.lease.lapsed_at
            if lapsed_at is not None and lapsed_at < now - 2 * member.lease.most_s - KEEPING_S:
                is_over = True
            if is_over and name in names:
                self.fail(f"{name} is still in set {model.id[:4]}")

    def check_events(self, model: SetModel, kind: SetEvent, number: int) -> None:
        """Compare the number of the last event with the events that were delivered."""
        events = model.events[kind]
        if not model.lives(self._sim.now) or not events.is_exact:
            return
        missing = [each for each in range(1, number + 1) if each not in events.events]
        for mailbox, numbers in events.stored.items():
            unread = numbers - events.received.get(mailbox, set())
            missing += [each for each in unread if each <= number]
        if missing:
            self.fail(f"{kind.name} of set {model.id[:4]}: of {number} events {missing} are lost")
        if kind is SetEvent.EXPIRATION_WARNING:
            return
        for name, member in model.members.items():
            lease = member.lease
            if member.membership is not Membership.LAPSED or name in events.failed:
                continue
            assert lease.lapsed_at is not None
            late_s = self._sim.now - lease.lapsed_at
            if min(late_s, member.earliest - lease.lapsed_at) > 3 * lease.most_s:
                self.fail(f"{name} of set {model.id[:4]} has lapsed without an event")


def _slack_s(until: float, now: float) -> float:
    return SLACK_S + DRIFT * max(60.0, now - until)
