"""`Discovery`: accessors, the six mutators, listeners and the end; on a simulated network."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any, Final

import pytest

from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery import Discovery
from leasehold.discovery.locators import Locator
from leasehold.discovery.registrar_search import CALL_S, usable_endpoints
from leasehold.discovery.state import ALL_GROUPS, LOCATOR_WAITS_S, NO_GROUPS, DiscoveryEvent
from leasehold.errors import ConnectFailed, UnsupportedOperation
from tests.support.fake_network import FakeNetwork, virtually

HERE: Final = Locator("here")
THERE: Final = Locator("there")


class Heard:
    """A listener that records what it was told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: DiscoveryEvent) -> None:
        names = ",".join(each.id for each in event.registrars)
        self.events.append(f"{event.kind.value} {names}")


async def found_one(network: FakeNetwork, **options: Any) -> Discovery:
    network.serve("R", "e1")
    discovery = Discovery(["a"], network=network, **options)
    network.announce("R", "e1")
    await asyncio.sleep(1)
    assert discovery.registrars() == [Registrar("R")]
    return discovery


# What is found.


@virtually
async def test_registrars_are_found_by_group_and_by_locator() -> None:
    network = FakeNetwork()
    network.serve("R", "e1")
    network.serve("S", "here:2379", groups="")
    async with Discovery(["a"], ["leasehold://HERE"], network=network) as discovery:
        network.announce("R", "e1")
        await asyncio.sleep(1)
        assert {each.id for each in discovery.registrars()} == {"R", "S"}
        assert discovery.discovered_locators() == [HERE]
        assert discovery.undiscovered_locators() == []


@virtually
async def test_a_registrar_counts_only_if_one_of_its_endpoints_names_the_same_id() -> None:
    network = FakeNetwork()
    network.serve("FALSE", "e1")
    network.serve("R", "e3")
    network.hanging.add("e2")
    async with Discovery(["a"], network=network) as discovery:
        network.announce("R", "e1", "e2", "e3")
        await asyncio.sleep(1)
        assert discovery.registrars() == [Registrar("R")]


def test_endpoints_that_mean_another_machine_here_or_differ_in_tls_are_left_out() -> None:
    """A loopback address in an answer is one of the machine that has sent it."""
    answered = "http://10.0.0.1:2379"
    others = [answered, "http://127.0.0.1:2379", "https://10.0.0.1:2380", "http://[::1]:1", "no"]
    assert usable_endpoints(answered, [*others, "http://10.0.0.2:2379"]) == (
        answered,
        "http://10.0.0.2:2379",
    )
    over_tls = ["https://10.0.0.1:2380", "http://10.0.0.1:2379"]
    assert usable_endpoints(over_tls[0], over_tls) == (over_tls[0],)
    here = ["http://localhost:2379", "http://127.0.0.1:2379"]
    assert usable_endpoints(here[0], here) == tuple(here)


@virtually
async def test_a_registrar_that_does_not_answer_in_time_is_called_again() -> None:
    network = FakeNetwork()
    network.serve("R", "here:2379")
    network.hanging.add("here:2379")
    async with Discovery(locators=[HERE], network=network) as discovery:
        await asyncio.sleep(CALL_S)
        network.hanging.clear()
        await asyncio.sleep(LOCATOR_WAITS_S[0] + 1)
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_references_to_one_registrar_are_equal_whichever_address_was_used() -> None:
    network = FakeNetwork()
    network.at["here:2379"] = Registrar("R", endpoints=("here:2379",))
    network.at["there:2379"] = Registrar("R", endpoints=("there:2379",))
    async with (
        Discovery(locators=[HERE], network=network) as one,
        Discovery(locators=[THERE], network=network) as other,
    ):
        await asyncio.sleep(1)
        assert one.registrars() == other.registrars()
        assert len({*one.registrars(), *other.registrars()}) == 1


@virtually
async def test_retries_are_spread_within_the_schedule() -> None:
    network = FakeNetwork()
    loop, times = asyncio.get_running_loop(), []

    async def describe(endpoint: str) -> Registrar:
        times.append(loop.time())
        raise ConnectFailed("refused")

    network.describe = describe  # type: ignore[method-assign]
    async with Discovery(locators=[HERE], network=network):
        await asyncio.sleep(60)
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(waits) >= 3
    assert all(
        0.8 * most <= wait <= most for most, wait in zip(LOCATOR_WAITS_S, waits, strict=False)
    )


@virtually
async def test_locators_alone_do_not_listen_on_the_network() -> None:
    network = FakeNetwork()
    async with Discovery(locators=[HERE], network=network) as discovery:
        before = network.browsed
        discovery.set_groups(["a"])
        discovery.set_groups([])
        discovery.set_groups(ALL_GROUPS)
    assert (before, network.browsed) == (0, 1)


# Accessors.


@virtually
async def test_results_are_new_lists() -> None:
    network = FakeNetwork()
    async with await found_one(network, locators=[HERE]) as discovery:
        for read in (
            discovery.registrars,
            discovery.groups,
            discovery.locators,
            discovery.undiscovered_locators,
        ):
            first = read()
            assert first
            first.clear()
            assert read()


@virtually
async def test_groups_are_none_for_all_and_empty_for_none() -> None:
    async with Discovery(ALL_GROUPS, None, network=FakeNetwork()) as discovery:
        assert discovery.groups() is None
        assert discovery.locators() == []
        discovery.set_groups(NO_GROUPS)
        assert discovery.groups() == []


@virtually
async def test_the_last_error_at_each_undiscovered_locator_is_returned() -> None:
    network = FakeNetwork()
    network.hanging.add("there:2379")
    async with Discovery(locators=[HERE, THERE], network=network) as discovery:
        assert discovery.locator_errors() == {}
        await asyncio.sleep(CALL_S + 1)
        errors = {locator: str(error) for locator, error in discovery.locator_errors().items()}
        assert errors == {HERE: "cannot connect to here:2379", THERE: "no answer within 5 s"}
        network.serve("", "here:2379")
        await asyncio.sleep(LOCATOR_WAITS_S[1])
        assert "has answered without the id of a registrar" in str(discovery.locator_errors()[HERE])
        network.serve("R", "here:2379")
        await asyncio.sleep(LOCATOR_WAITS_S[2])
        assert list(discovery.locator_errors()) == [THERE]


@virtually
async def test_an_unexpected_error_of_a_call_is_a_failed_call() -> None:
    network = FakeNetwork()

    async def describe(endpoint: str) -> Registrar:
        network.called.append(endpoint)
        raise AttributeError("what another host has sent")

    network.describe = describe  # type: ignore[method-assign]
    async with Discovery(locators=[HERE], network=network) as discovery:
        await asyncio.sleep(LOCATOR_WAITS_S[0] + 1)
        assert len(network.called) == 2
        assert "AttributeError" in repr(discovery.locator_errors()[HERE])


# Mutators.


@virtually
async def test_groups_are_added_set_and_removed() -> None:
    async with Discovery(network=FakeNetwork()) as discovery:
        discovery.add_groups(["b", "a", "b"])
        assert discovery.groups() == ["a", "b"]
        discovery.add_groups([])
        discovery.remove_groups(["unknown"])
        assert discovery.groups() == ["a", "b"]
        discovery.remove_groups(["a", "unknown"])
        assert discovery.groups() == ["b"]
        discovery.set_groups(["", ""])
        assert discovery.groups() == [""]


@pytest.mark.parametrize("name", ["add_groups", "remove_groups"])
@virtually
async def test_add_and_remove_on_all_groups_are_unsupported(name: str) -> None:
    async with Discovery(ALL_GROUPS, network=FakeNetwork()) as discovery:
        with pytest.raises(
            UnsupportedOperation, match="all groups: set the names of the wanted groups"
        ):
            getattr(discovery, name)(["a"])
        with pytest.raises(TypeError):
            getattr(discovery, name)(None)
        assert discovery.groups() is None


@virtually
async def test_locators_are_added_set_and_removed_by_equality() -> None:
    async with Discovery(network=FakeNetwork()) as discovery:
        discovery.add_locators(["leasehold://here", "leasehold://HERE:2379", THERE])
        assert discovery.locators() == [HERE, THERE]
        discovery.add_locators([])
        discovery.remove_locators(["leasehold://unknown"])
        assert discovery.locators() == [HERE, THERE]
        discovery.remove_locators(["leaseholds://Here"])
        assert discovery.locators() == [THERE]
        discovery.set_locators([])
        assert discovery.locators() == []


@pytest.mark.parametrize("name", ["set_locators", "add_locators"])
@virtually
async def test_a_locator_that_is_wanted_with_tls_is_called_with_tls(name: str) -> None:
    network, heard = FakeNetwork(), Heard()
    network.serve("R", "here:2379", "https://here:2379")
    async with Discovery(locators=["leasehold://here"], network=network) as discovery:
        discovery.add_listener(heard)
        await asyncio.sleep(1)
        network.called.clear()
        getattr(discovery, name)(["leaseholds://here"])
        assert list(map(str, discovery.locators())) == ["leaseholds://here:2379"]
        assert discovery.registrars() == []
        await asyncio.sleep(1)
        assert network.called == ["https://here:2379"]
        assert discovery.discovered_locators() == [HERE]
        assert heard.events == ["discovered R", "discarded R", "discovered R"]
        discovery.add_locators(["leasehold://here"])  # it is wanted already, and keeps TLS
        assert list(map(str, discovery.locators())) == ["leaseholds://here:2379"]
        assert discovery.registrars() == [Registrar("R")]


@virtually
async def test_a_call_without_tls_has_no_effect_once_tls_is_wanted() -> None:
    network = FakeNetwork()
    network.serve("R", "here:2379")
    async with Discovery(locators=["leasehold://here"], network=network) as discovery:
        await asyncio.sleep(0.005)
        discovery.set_locators(["leaseholds://here"])
        await asyncio.sleep(1)
        assert discovery.registrars() == []
        assert network.called == ["here:2379", "https://here:2379"]


@pytest.mark.parametrize(
    "name",
    ["add_groups", "remove_groups", "add_locators", "set_locators", "remove_locators"],
)
@virtually
async def test_none_is_refused_and_changes_nothing(name: str) -> None:
    async with Discovery(["a"], [HERE], network=FakeNetwork()) as discovery:
        with pytest.raises(TypeError):
            getattr(discovery, name)(None)
        assert (discovery.groups(), discovery.locators()) == (["a"], [HERE])


@pytest.mark.parametrize(
    "name",
    [f"{verb}_{what}" for verb in ("add", "set", "remove") for what in ("groups", "locators")],
)
@virtually
async def test_none_elements_are_refused_and_change_nothing(name: str) -> None:
    async with Discovery(["a"], [HERE], network=FakeNetwork()) as discovery:
        with pytest.raises(TypeError):
            getattr(discovery, name)([None])
        assert (discovery.groups(), discovery.locators()) == (["a"], [HERE])


@virtually
async def test_groups_that_are_set_to_empty_halt_discovery_and_discard() -> None:
    network, heard = FakeNetwork(), Heard()
    async with await found_one(network) as discovery:
        discovery.add_listener(heard)
        discovery.set_groups(NO_GROUPS)
        assert discovery.registrars() == []
        assert heard.events == ["discovered R", "discarded R"]


@virtually
async def test_a_discarded_registrar_is_gone_when_discard_returns() -> None:
    network, heard = FakeNetwork(), Heard()
    async with await found_one(network) as discovery:
        discovery.add_listener(heard)
        discovery.discard(discovery.registrars()[0])
        assert discovery.registrars() == []
        await asyncio.sleep(11)
        assert heard.events == ["discovered R", "discarded R", "discovered R"]


@virtually
async def test_discarding_none_or_a_stranger_is_ignored() -> None:
    async with await found_one(FakeNetwork()) as discovery:
        discovery.discard(None)
        discovery.discard(Registrar("stranger"))
        assert discovery.registrars() == [Registrar("R")]


# Listeners.


@virtually
async def test_a_listener_that_joins_late_hears_of_everything_already_found() -> None:
    network, heard = FakeNetwork(), Heard()
    async with await found_one(network) as discovery:
        network.serve("S", "e2")
        network.announce("S", "e2")
        await asyncio.sleep(1)
        discovery.add_listener(heard)
        assert heard.events == ["discovered R,S"]
        discovery.add_listener(heard)  # it is there already
        assert heard.events == ["discovered R,S"]


@virtually
async def test_a_listener_that_raises_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: DiscoveryEvent) -> None:
        raise ValueError("broken listener")

    network, heard = FakeNetwork(), Heard()
    network.serve("R", "e1")
    async with Discovery(["a"], network=network) as discovery:
        discovery.add_listener(fail)
        discovery.add_listener(heard)
        with caplog.at_level(logging.ERROR):
            network.announce("R", "e1")
            await asyncio.sleep(1)
    assert heard.events == ["discovered R"]
    assert "broken listener" in caplog.text


@virtually
async def test_changed_events_go_to_listeners_that_ask_for_them() -> None:
    network, asking, other = FakeNetwork(), Heard(), Heard()
    async with await found_one(network) as discovery:
        discovery.add_listener(asking, changes=True)
        discovery.add_listener(other)
        network.serve("R", "e1", groups="a b", number=2)
        network.announce("R", "e1", number=2)
        await asyncio.sleep(1)
    assert asking.events == ["discovered R", "changed R"]
    assert other.events == ["discovered R"]


@virtually
async def test_a_none_listener_is_refused() -> None:
    async with Discovery(network=FakeNetwork()) as discovery:
        with pytest.raises(TypeError):
            discovery.add_listener(None)  # type: ignore[arg-type]

        async def listener(event: DiscoveryEvent) -> None: ...

        with pytest.raises(TypeError, match="plain function"):
            discovery.add_listener(listener)


@virtually
async def test_removing_an_unknown_listener_is_ignored() -> None:
    network, heard = FakeNetwork(), Heard()
    async with Discovery(["a"], network=network) as discovery:
        discovery.remove_listener(heard)
        discovery.add_listener(heard)
        discovery.remove_listener(heard)
        network.serve("R", "e1")
        network.announce("R", "e1")
        await asyncio.sleep(1)
    assert heard.events == []


@virtually
async def test_a_change_that_a_listener_makes_is_delivered_after_the_event() -> None:
    network, heard = FakeNetwork(), Heard()
    network.serve("R", "e1")
    async with Discovery(["a"], network=network) as discovery:

        def discard(event: DiscoveryEvent) -> None:
            if event.kind.value == "discovered":
                discovery.discard(event.registrars[0])

        discovery.add_listener(discard)
        discovery.add_listener(heard)
        network.announce("R", "e1")
        await asyncio.sleep(1)
        assert heard.events == ["discovered R", "discarded R"]


# The end.


@virtually
async def test_after_close_every_call_raises_runtime_error() -> None:
    discovery = await found_one(FakeNetwork())
    await discovery.close()
    await discovery.close()
    calls: list[Callable[[], object]] = [
        discovery.registrars,
        discovery.groups,
        discovery.locators,
        discovery.discovered_locators,
        discovery.undiscovered_locators,
        discovery.locator_errors,
        lambda: discovery.add_groups(["a"]),
        lambda: discovery.set_groups(["a"]),
        lambda: discovery.remove_groups(["a"]),
        lambda: discovery.add_locators([HERE]),
        lambda: discovery.set_locators([HERE]),
        lambda: discovery.remove_locators([HERE]),
        lambda: discovery.discard(Registrar("R")),
        lambda: discovery.add_listener(print),
        lambda: discovery.remove_listener(print),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="was closed"):
            call()


@virtually
async def test_after_close_nothing_is_reported_and_no_call_is_made() -> None:
    network, heard = FakeNetwork(), Heard()
    discovery = await found_one(network, locators=[HERE])
    discovery.add_listener(heard)
    network.hanging.add("here:2379")
    await discovery.close()
    called = len(network.called)
    network.announce("R", "e1", number=2)
    network.withdrawn("e1")
    await asyncio.sleep(3600)
    assert heard.events == ["discovered R"]
    assert len(network.called) == called
    assert network.is_closed
