"""Discovery under random announcements, calls, changes and discards: what always holds.

Events, applied to nothing, give the registrars that are found. Each of them has answered a call and
is covered by a wanted group or locator. Nothing that is wanted is forgotten: there is a call under
way or planned, or an announcement whose end is awaited. When the network is left in peace, exactly
those registrars are found that answer and are wanted.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leasehold.basics.durations import NEVER
from leasehold.discovery.announced import Announcement, Registrar
from leasehold.discovery.searches import Call
from leasehold.discovery.state import NO_GROUPS, DiscoveryState, EventKind

NAMES = ("R", "S")
SERVERS = {"r1": "R", "r2": "R", "s1": "S"}
"""Servers, which are also endpoints, and the registrars that they belong to."""
LOCATORS = ("r1", "s1", "x1")
GROUPS = ("a", "b")
TTL_S = 30.0

some_groups = st.frozensets(st.sampled_from(GROUPS))


class DiscoveryMachine(RuleBasedStateMachine):
    """A client's discovery, and a network with two registrars."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.state: DiscoveryState[str] = DiscoveryState()
        self.groups = dict.fromkeys(NAMES, frozenset("a"))
        self.numbers = dict.fromkeys(NAMES, 1)
        self.reachable = dict.fromkeys(SERVERS, True)
        self.announcing = dict.fromkeys(SERVERS, False)
        self.calls: list[Call] = []
        self.answered: set[str] = set()
        self.told: dict[str, Registrar] = {}

    # The network.

    @rule(name=st.sampled_from(NAMES), groups=some_groups)
    def change_groups(self, name: str, groups: frozenset[str]) -> None:
        if self.groups[name] != groups:
            self.groups[name] = groups
            self.numbers[name] += 1

    @rule(server=st.sampled_from(sorted(SERVERS)))
    def announce(self, server: str) -> None:
        name = SERVERS[server]
        heard = Announcement(server, name, (server,), self.numbers[name], TTL_S)
        self.state.announced(heard, self.now)
        self.announcing[server] = True

    @rule(server=st.sampled_from(sorted(SERVERS)))
    def say_goodbye(self, server: str) -> None:
        self.announcing[server] = False
        self.state.withdrawn(server, self.now)

    @rule(server=st.sampled_from(sorted(SERVERS)), is_reachable=st.booleans())
    def reach(self, server: str, is_reachable: bool) -> None:
        self.reachable[server] = is_reachable
        if not is_reachable:
            self.announcing[server] = False

    @rule(server=st.sampled_from(sorted(SERVERS)))
    def announce_falsely(self, server: str) -> None:
        self.state.announced(Announcement(server, "FALSE", (server,), 1, TTL_S), self.now)
        self.announcing[server] = False

    @rule(
        name=st.sampled_from(NAMES),
        liar=st.sampled_from(["l1", "l2"]),
        number=st.integers(0, 3),
        ttl_s=st.sampled_from([1.0, TTL_S, 86_400.0]),
    )
    def announce_false_endpoints(self, name: str, liar: str, number: int, ttl_s: float) -> None:
        endpoints = tuple(f"{liar}-{place}" for place in range(20))
        self.state.announced(Announcement(liar, name, endpoints, number, ttl_s), self.now)

    # The client.

    @rule(groups=st.none() | some_groups)
    def want_groups(self, groups: frozenset[str] | None) -> None:
        self.state.set_groups(groups, self.now)

    @rule(locators=st.lists(st.sampled_from(LOCATORS), unique=True))
    def want_locators(self, locators: list[str]) -> None:
        self.state.set_locators({each: each for each in locators}, self.now)

    @rule(name=st.sampled_from(NAMES))
    def discard(self, name: str) -> None:
        self.state.discard(name, self.now)
        assert name not in {each.id for each in self.state.registrars}

    # Time and calls.

    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0, 20.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.calls += self.state.due(self.now)

    @rule()
    def begin_calls(self) -> None:
        self.calls += self.state.due(self.now)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def end_call(self, data: st.DataObject) -> None:
        call = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        self._end(call)

    def _end(self, call: Call) -> None:
        for endpoint in call.endpoints:
            name = SERVERS.get(endpoint)
            if name is not None and self.reachable[endpoint]:
                self.answered.add(name)
                registrar = Registrar(name, self.groups[name], self.numbers[name], (endpoint,))
                self.state.answered(call, registrar, self.now)
                return
        self.state.failed(call, self.now)

    # What always holds.

    @invariant()
    def events_give_what_is_found(self) -> None:
        for event in self.state.take_events():
            for registrar in event.registrars:
                if event.kind is EventKind.DISCOVERED:
                    assert registrar.id not in self.told
                    self.told[registrar.id] = registrar
                elif event.kind is EventKind.CHANGED:
                    assert self.told[registrar.id].groups != registrar.groups
                    self.told[registrar.id] = registrar
                else:
                    del self.told[registrar.id]
        assert set(self.told) == {each.id for each in self.state.registrars}

    @invariant()
    def what_is_found_has_answered_and_is_covered(self) -> None:
        by_locator = set(filter(None, self.state.locators.values()))
        for registrar in self.state.registrars:
            assert registrar.id in self.answered
            wanted = self.state.groups
            by_group = wanted is None or not wanted.isdisjoint(registrar.groups)
            assert registrar.id in by_locator or by_group
        assert by_locator <= {each.id for each in self.state.registrars}

    @invariant()
    def a_search_has_one_call_at_a_time(self) -> None:
        searches = [id(call.search) for call in self.calls]
        assert len(searches) == len(set(searches))

    @invariant()
    def nothing_that_is_wanted_is_forgotten(self) -> None:
        is_waiting = self.state.next_at != NEVER or any(
            call.search.under_way == call.number for call in self.calls
        )
        if not all(self.state.locators.values()):
            assert is_waiting
        by_locator = set(self.state.locators.values())
        if any(each.id not in by_locator for each in self.state.registrars):
            assert is_waiting  # its announcements end, or it is called

    def teardown(self) -> None:
        """Leave the network in peace: servers that are reachable and heard announce themselves."""
        for _ in range(400):
            for server, is_announcing in self.announcing.items():
                if is_announcing and self.reachable[server]:
                    self.announce(server)
            self.now += 5.0
            self.calls += self.state.due(self.now)
            while self.calls:
                self._end(self.calls.pop(0))
                self.calls += self.state.due(self.now)
            self.events_give_what_is_found()
        found = {each.id: each for each in self.state.registrars}
        for name in NAMES:
            servers = [each for each, of in SERVERS.items() if of == name and self.reachable[each]]
            is_heard = any(self.announcing[each] for each in servers)
            wanted = self.state.groups
            is_in_group = wanted is None or not wanted.isdisjoint(self.groups[name])
            if is_heard and is_in_group:
                assert name in found
                assert found[name].groups == self.groups[name]
            if not servers and name not in self.state.locators.values():
                assert name not in found
        for locator in self.state.locators:
            if locator in SERVERS and self.reachable[locator]:
                assert self.state.locators[locator]
        self.what_is_found_has_answered_and_is_covered()
        assert self.state.groups != NO_GROUPS or set(found) <= set(self.state.locators.values())


TestDiscovery = DiscoveryMachine.TestCase
