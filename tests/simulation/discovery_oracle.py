"""Compares what the discovery service does with what clients want and registrars do, in true time.

The oracle keeps its own model of every registration, made of the calls and their answers, and sees
every event when it is stored and when it is received. It checks:

- Numbers of events rise by one. One number is one event, also if it is received again.
- A registrar is discovered only when the registration does not have it, and discarded only when it
  has it; so none is announced twice.
- A registrar is discovered only if the registration wants it, and not within 10 s of its discard.
- A registrar is discarded only if there is a reason: the client has discarded it or withdrawn an
  interest, it has changed its groups, it did not answer, or another one has taken its place.
- Nothing is sent after the end of a registration.
- When everything has been quiet for a while, each registration has the registrars that its
  interests and the reachable registrars say, and its listener has received exactly these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from leasehold.discovery.live_registration import NewEvent
from leasehold.discovery.locators import Locator
from leasehold.discovery.state import DISCARDED_GROUP_S, Groups
from leasehold.events.state import RemoteEvent
from leasehold.testing import Simulation
from leasehold.wire import discovery_pb2 as pb
from tests.simulation.oracle import Violation
from tests.support.discovery_stage import EventStream
from tests.support.registrar_network import RegistrarNetwork, SimulatedRegistrar

LOOK_S: Final = 0.1

SETTLED_S: Final = 20.0
"""How long an interest, or the groups of a registrar, may take to be noticed by everything."""

CALLED_S: Final = 6.0
"""How long a call to a registrar may take."""

SLACK_S: Final = 0.1


@dataclass(eq=False)
class RegistrationModel:
    """A registration, by the calls."""

    id: str
    listener: str
    groups: Groups
    locators: frozenset[Locator]
    latest: float
    """It ends at this time at the latest, unless it is renewed."""
    changed_at: float
    """When a call that changes interests was made, or answered, for the last time."""
    is_uncertain: bool = False
    """A call had no answer: the interests are unknown."""
    discards: dict[str, float] = field(default_factory=dict)
    """When the client has discarded registrars."""
    ended_at: float | None = None
    stream: EventStream = field(default_factory=EventStream)
    """What the listener has received."""
    stored_at: dict[str, float] = field(default_factory=dict)
    """When the last event about a registrar was stored, as far as it was seen."""

    def wants(self, registrar: SimulatedRegistrar) -> bool:
        """Whether a registrar is in a wanted group."""
        return self.groups is None or not self.groups.isdisjoint(registrar.groups)

    def names(self, registrar: SimulatedRegistrar) -> bool:
        """Whether an endpoint that a registrar had from the beginning is a wanted locator."""
        return any(each.endpoint in registrar.endpoints for each in self.locators)

    def at(self, network: RegistrarNetwork) -> set[str]:
        """The registrars at the wanted locators, whether they answer or not."""
        return {network.at[each.endpoint] for each in self.locators if each.endpoint in network.at}


class DiscoveryOracle:
    """Observes the service, its listeners and the registrars."""

    def __init__(self, sim: Simulation, network: RegistrarNetwork) -> None:
        self._sim = sim
        self._network = network
        self.registrations: dict[str, RegistrationModel] = {}
        self.bad_at: dict[str, float] = {}
        """When a registrar did not answer for the last time, or its endpoint was taken."""
        self.regrouped_at: dict[str, float] = {}
        self._early: dict[str, list[tuple[str, RemoteEvent]]] = {}
        """Events of registrations whose clients have no answer yet."""
        self.late_s = CALLED_S
        """How long before an event was stored its reason may have come."""
        self.stored = self.received_events = 0
        self.violations: list[str] = []

    def start(self) -> None:
        """Begin to look at the registrars, again and again."""
        for name, registrar in self._network.registrars.items():
            if not registrar.answers:
                self.bad_at[name] = self._sim.now
        self._sim.after(LOOK_S, self.start)

    def fail(self, why: str) -> None:
        """Report a violation outside all hosts, where no code under test can catch it."""
        self.violations.append(why)
        self._sim.record(f"VIOLATION {why}")

        def report() -> None:
            raise Violation(why)

        self._sim.after(0.0, report)

    def add(self, model: RegistrationModel) -> None:
        """Begin to observe a registration: its client has an answer."""
        self.registrations[model.id] = model
        for listener, event in self._early.pop(model.id, ()):
            self._receive(model, listener, event)

    # Events, when they are stored.

    def stores(self, registration: str, events: Sequence[NewEvent]) -> None:
        """See events that were stored."""
        model = self.registrations.get(registration)
        for event in events:
            self.stored += 1
            payload = pb.RegistrarsPayload.FromString(event.payload or b"")
            for found in payload.registrars:
                if model is not None:
                    self._check_reason(model, found.id, is_discarded=payload.discarded)
                    model.stored_at[found.id] = self._sim.now

    def _check_reason(
        self, model: RegistrationModel, registrar: str, *, is_discarded: bool
    ) -> None:
        now, known, at = self._sim.now, self._network[registrar], model.at(self._network)
        is_covered = registrar in at and model.names(known)
        what = f"registration {model.id[:4]}: {registrar} is "
        if is_discarded:
            since = model.stored_at.get(registrar, model.changed_at) - self.late_s
            bad_at = self.bad_at.get(registrar, -1.0)
            reasons = [bad_at, model.discards.get(registrar, -1.0), model.changed_at]
            # Else a locator covers it, whatever its groups are.
            if bad_at > 0.0 or now < model.changed_at + SETTLED_S or not is_covered:
                reasons.append(self.regrouped_at.get(registrar, -1.0))
            if max(reasons) < since and not model.is_uncertain:
                self.fail(what + "discarded without a reason")
            return
        if now < model.discards.get(registrar, -1e9) + DISCARDED_GROUP_S - SLACK_S:
            self.fail(what + "discovered too soon after it was discarded")
        settled_at = max(model.changed_at, self.regrouped_at.get(registrar, 0.0))
        is_settled = now > settled_at + SETTLED_S and not model.is_uncertain
        if is_settled and not model.wants(known) and registrar not in at:
            self.fail(what + "discovered and not wanted")

    # Events, when they are sent and received.

    def sends(self, events: Sequence[RemoteEvent]) -> None:
        """See events, when they are sent."""
        for event in events:
            model = self.registrations.get(event.source)
            if model is None:
                continue
            ended_at = model.ended_at if model.ended_at is not None else model.latest
            if self._sim.now > ended_at + SLACK_S:
                self.fail(f"event {event.number} of {model.id[:4]} is sent after its end")

    def received(self, listener: str, events: Sequence[RemoteEvent]) -> None:
        """See events, when a listener has received them."""
        for event in events:
            self.received_events += 1
            model = self.registrations.get(event.source)
            if model is None:
                self._early.setdefault(event.source, []).append((listener, event))
            else:
                self._receive(model, listener, event)

    def _receive(self, model: RegistrationModel, listener: str, event: RemoteEvent) -> None:
        if (listener, event.handback) != (model.listener, model.listener.encode()):
            self.fail(f"{model.id[:4]}: {listener} received handback {event.handback!r}")
        if wrong := model.stream.receive(event):
            self.fail(f"registration {model.id[:4]}: {wrong}")

    # In the end, when everything was quiet for a while.

    def check(
        self,
        model: RegistrationModel,
        found: set[str],
        number: int,
        waiting: int,
        *,
        is_restarted: bool,
        is_delivered: bool,
    ) -> None:
        """Compare the registrars of a registration with those that it should have.

        One that is covered by locator only is kept, whether it answers or not, until another one
        has answered there. That is known after a restart, when each locator is called.
        """
        registrars, at = self._network.registrars.values(), model.at(self._network)
        must = {
            each.id
            for each in registrars
            if each.answers
            and (model.wants(each) or (each.id in at and (is_restarted or model.names(each))))
        }
        may = at if is_restarted else {*at, *(each.id for each in registrars if model.names(each))}
        what = f"registration {model.id[:4]} has {sorted(found)}"
        if missing := must - found:
            self.fail(f"{what}, and not {sorted(missing)}")
        if surplus := found - must - may:
            self.fail(f"{what}, and should not have {sorted(surplus)}")
        if not is_delivered:
            return
        if waiting:
            self.fail(f"registration {model.id[:4]} has {waiting} undelivered events")
        if model.stream.last != number:
            self.fail(f"{what}: event {model.stream.last} of {number} was the last one received")
        if model.stream.registrars != found:
            self.fail(f"{what}, and its listener {sorted(model.stream.registrars or ())}")
