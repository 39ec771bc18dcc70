"""`Join`: a service at every registrar, through loss and return of registrars; in virtual time."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from leasehold.discovery.announced import Registrar
from leasehold.discovery.discovery import Discovery
from leasehold.discovery.join import CLOSE_S, MAX_CHANGES, Join
from leasehold.discovery.state import EventKind
from leasehold.errors import CallRefused, ConnectionLost, LeaseDenied, UnknownLease
from leasehold.registry.state import (
    MAX_ITEM_BYTES,
    MAX_NAME,
    MAX_SETS,
    MAX_UPDATES,
    AttributeSet,
    Descriptor,
    Health,
    Item,
    attribute_set,
)
from leasehold.testing import current_host
from tests.support.fake_network import FakeNetwork, virtually
from tests.support.fake_registrars import TERM_S, FakeRegistrar, id_of

MINE = id_of("mine")
DRIVER = Descriptor("Driver", "json", b"{}")


def tag(name: str) -> AttributeSet:
    return attribute_set("Tag", {"tag": name})


class World:
    """Registrars R and S of group a, which are found when they are announced."""

    def __init__(self, item: Item | None = None, **options: Any) -> None:
        self.network = FakeNetwork()
        self.registrars = {name: FakeRegistrar(name) for name in "RS"}
        self.ids: list[str] = []
        self.endpoints: list[tuple[str, ...]] = []
        """Where registrars were connected to."""
        self.discovery = Discovery(["a"], network=self.network)
        for name in self.registrars:
            self.network.serve(name, name)
        self.join = Join(
            Item("", attributes=(tag("first"),), descriptor=DRIVER) if item is None else item,
            discovery=self.discovery,
            connect=self.connect,
            on_id=self.ids.append,
            clock=current_host().clock,
            **options,
        )

    async def connect(self, registrar: Registrar) -> FakeRegistrar:
        self.endpoints.append(registrar.endpoints)
        return self.registrars[registrar.id]

    def announce(self, *names: str) -> None:
        for name in names:
            self.network.announce(name, name)

    def tags(self, name: str) -> list[str]:
        item = self.registrars[name].item
        assert item is not None
        return [dict(each.fields)["tag"].strip('"') for each in item.attributes]

    async def close(self) -> None:
        await self.join.close()
        await self.discovery.close()


@virtually
async def test_a_service_is_registered_with_present_and_future_registrars_with_one_id() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    assert world.ids == [id_of("R")]
    world.announce("S")
    await asyncio.sleep(1)
    assert world.tags("R") == world.tags("S") == ["first"]
    assert world.registrars["S"].item is not None
    assert world.registrars["S"].item.id == id_of("R")
    assert {each.id for each in world.join.registrars()} == {"R", "S"}
    await world.close()


@virtually
async def test_registrars_that_are_found_together_get_one_id_which_is_told_once() -> None:
    world = World()
    world.announce("R", "S")
    await asyncio.sleep(1)
    assert len(world.ids) == 1
    found = {each.item.id for each in world.registrars.values() if each.item is not None}
    assert found == set(world.ids) == {world.join.item.id}
    await world.close()


@virtually
async def test_an_id_that_the_service_has_is_used() -> None:
    world = World(Item(MINE))
    world.announce("R", "S")
    await asyncio.sleep(1)
    assert world.ids == [MINE]
    assert world.registrars["S"].item == Item(MINE)
    await world.close()


@virtually
async def test_a_service_without_id_and_descriptor_keeps_one_id_when_an_answer_is_lost() -> None:
    world = World(Item("", attributes=(tag("first"),)))
    world.registrars["R"].errors["register"] = [ConnectionLost("the answer is lost")] * 3
    world.announce("R")
    await asyncio.sleep(10)
    world.announce("S")
    await asyncio.sleep(1)
    used = {*world.registrars["R"].ids, *world.registrars["S"].ids}
    assert used == {str(UUID(world.join.item.id))}
    assert len(world.registrars["R"].ids) == 4
    assert world.ids == [world.join.item.id]
    await world.close()


@virtually
async def test_an_excluded_registrar_is_not_joined() -> None:
    world = World(Item(MINE), excluded={"R"})
    world.announce("R", "S")
    await asyncio.sleep(1)
    assert [each.id for each in world.join.registrars()] == ["S"]
    world.discovery.discard(Registrar("R"))
    await asyncio.sleep(100)
    assert world.registrars["R"].calls == []
    await world.close()


@virtually
async def test_an_aborted_join_cancels_nothing_and_renews_nothing() -> None:
    world = World(Item(MINE))
    registrar = world.registrars["R"]
    world.announce("R")
    await asyncio.sleep(1)
    await world.join.abort()
    await asyncio.sleep(TERM_S)
    assert registrar.calls == ["register", "disconnect"]
    assert registrar.item == Item(MINE)
    with pytest.raises(RuntimeError, match="was closed"):
        world.join.registrars()
    await world.close()


@virtually
async def test_leases_are_renewed() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(10 * TERM_S)
    registrar = world.registrars["R"]
    assert registrar.calls.count("register") == 1
    assert registrar.calls.count("renew") >= 9
    await world.close()


@virtually
async def test_each_lease_is_requested_for_the_duration_of_the_join() -> None:
    world = World(duration=40.0)
    world.announce("R")
    await asyncio.sleep(5 * TERM_S)
    requested = world.registrars["R"].requested
    assert len(requested) > 2
    assert set(requested) == {40.0}
    await world.close()


@virtually
async def test_a_service_whose_lease_is_unknown_is_registered_again_with_its_changes() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    world.join.add_attributes([tag("second")])
    await asyncio.sleep(1)
    world.registrars["R"].item = None  # it was lost, such as by an operator
    await asyncio.sleep(TERM_S)
    assert world.tags("R") == ["first", "second"]
    assert world.ids == [id_of("R")]
    await world.close()


@virtually
async def test_a_service_is_registered_again_at_the_endpoints_that_the_registrar_has_now() -> None:
    world = World(Item(MINE))
    world.announce("R")
    await asyncio.sleep(1)
    del world.network.at["R"]
    world.network.serve("R", "moved", number=2)
    world.network.announce("R", "moved", number=2)
    await asyncio.sleep(10)
    world.registrars["R"].errors["health"] = [UnknownLease("the service")]
    world.join.set_health(Health.FAILING)
    await asyncio.sleep(1)
    assert world.registrars["R"].item == Item(MINE, health=Health.FAILING)
    assert world.endpoints == [("R",), ("moved",)]
    await world.close()


@virtually
async def test_registering_again_waits_up_to_a_second_and_then_up_to_a_minute_if_it_recurs() -> (
    None
):
    world = World(Item(MINE))
    registrar = world.registrars["R"]
    world.announce("R")
    await asyncio.sleep(1)
    for _ in range(200):  # it forgets the service after each registration
        registrar.item = None
        world.join.add_attributes([tag("again")])
        await asyncio.sleep(5)
    waits = [later - earlier for earlier, later in itertools.pairwise(registrar.times)]
    assert waits[0] < 2.0  # the first one comes immediately
    assert max(waits) <= 60.0 + 5.0 + 1.0
    assert max(waits[1:4]) < 15.0
    assert 20 < len(registrar.times) < 190
    await world.close()


@virtually
async def test_another_definite_error_discards_the_registrar_which_is_tried_again_later() -> None:
    world = World()
    registrar = world.registrars["R"]
    registrar.errors["register"] = [CallRefused("no")]
    world.announce("R")
    await asyncio.sleep(1)
    assert world.discovery.registrars() == []
    assert world.join.registrars() == []
    await asyncio.sleep(10)
    assert world.tags("R") == ["first"]
    await world.close()


@virtually
async def test_a_renewal_that_is_denied_discards_the_registrar() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    world.registrars["R"].errors["renew"] = [LeaseDenied("no more")]
    gone = asyncio.Event()
    world.discovery.add_listener(
        lambda event: gone.set() if event.kind is EventKind.DISCARDED else None
    )
    await gone.wait()
    assert world.join.registrars() == []
    await world.close()


@virtually
async def test_an_indefinite_error_is_retried() -> None:
    world = World()
    world.registrars["R"].errors["register"] = [ConnectionLost("lost")] * 5
    world.announce("R")
    await asyncio.sleep(60)
    assert world.tags("R") == ["first"]
    assert world.discovery.registrars() == [Registrar("R")]
    await world.close()


@virtually
async def test_changes_reach_each_registrar_in_the_order_of_the_calls() -> None:
    world = World()
    world.announce("R", "S")
    await asyncio.sleep(1)
    world.join.add_attributes([tag("second")])
    world.join.modify_attributes([tag("second")], [tag("third")])
    world.join.add_attributes([tag("fourth")])
    world.join.modify_attributes([tag("first")], [None])
    world.join.set_health(Health.MAINTENANCE)
    await asyncio.sleep(1)
    for name, registrar in world.registrars.items():
        changes = [each for each in registrar.calls if each not in ("register", "renew")]
        assert changes == ["add", "modify", "add", "modify", "health"]
        assert world.tags(name) == ["third", "fourth"]
        assert registrar.item == world.join.item
    await world.close()


@virtually
async def test_a_change_whose_outcome_is_unknown_is_followed_by_the_whole_state() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    world.registrars["R"].errors["add"] = [ConnectionLost("lost")]
    world.join.add_attributes([tag("second")])
    world.join.add_attributes([tag("third")])
    await asyncio.sleep(5)
    assert world.tags("R") == ["first", "second", "third"]
    assert world.registrars["R"].calls == ["register", "add", "set", "health"]
    await world.close()


@virtually
async def test_many_changes_that_wait_are_replaced_by_the_whole_state() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    for number in range(3 * MAX_CHANGES):
        world.join.set_attributes([tag(str(number))])
    world.join.add_attributes([tag("last")])
    await asyncio.sleep(10)
    assert world.registrars["R"].item == world.join.item
    assert len(world.registrars["R"].calls) < MAX_CHANGES + 10
    await world.close()


@virtually
async def test_a_change_that_is_not_valid_is_refused_and_changes_nothing() -> None:
    world = World()
    with pytest.raises(ValueError, match="same length"):
        world.join.modify_attributes([tag("first")], [])
    assert world.join.item.attributes == (tag("first"),)
    await world.close()


@virtually
async def test_a_registrar_that_is_not_wanted_any_more_loses_the_service() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    world.discovery.set_groups([])
    await asyncio.sleep(1)
    assert world.registrars["R"].item is None
    assert world.registrars["R"].calls[-2:] == ["cancel", "disconnect"]
    world.discovery.set_groups(["a"])
    await asyncio.sleep(1)
    assert world.tags("R") == ["first"]
    await world.close()


@virtually
async def test_close_cancels_all_leases_and_later_calls_fail() -> None:
    world = World()
    world.announce("R", "S")
    await asyncio.sleep(1)
    await world.join.close()
    await world.join.close()
    assert [each.item for each in world.registrars.values()] == [None, None]
    for change in (
        lambda: world.join.add_attributes([tag("late")]),
        lambda: world.join.set_attributes([]),
        lambda: world.join.modify_attributes([], []),
        lambda: world.join.set_health(Health.PASSING),
        world.join.registrars,
    ):
        with pytest.raises(RuntimeError, match="was closed"):
            change()
    assert world.discovery.registrars()  # it is the program's
    await world.discovery.close()


@virtually
async def test_close_waits_at_most_5_s() -> None:
    world = World()
    world.announce("R", "S")
    await asyncio.sleep(1)
    world.registrars["R"].is_hanging = True
    loop = asyncio.get_running_loop()
    began = loop.time()
    await world.join.close()
    assert loop.time() - began <= CLOSE_S + 0.1
    assert world.registrars["S"].item is None
    await world.discovery.close()


@virtually
async def test_a_callback_for_the_id_that_raises_does_no_harm() -> None:
    def fail(name: str) -> None:
        raise ValueError(name)

    world = World()
    world.join._on_id = fail
    world.announce("R")
    await asyncio.sleep(1)
    assert world.tags("R") == ["first"]
    await world.close()
    async with (
        Discovery(["a"], network=FakeNetwork()) as discovery,
        Join(Item(MINE), discovery=discovery, on_id=fail) as join,
    ):
        assert join.item.id == MINE


@virtually
async def test_an_item_must_be_given() -> None:
    with pytest.raises(TypeError, match="item must be an Item"):
        Join(None)  # type: ignore[arg-type]


TOO_MANY = [attribute_set("Number", {"n": number}) for number in range(MAX_SETS + 1)]


@pytest.mark.parametrize(
    "change",
    [
        lambda join: join.add_attributes(TOO_MANY),
        lambda join: join.add_attributes(TOO_MANY[:-1]),  # with the one that is there
        lambda join: join.add_attributes([tag("same")] * (MAX_SETS + 1)),
        lambda join: join.set_attributes(TOO_MANY),
        lambda join: join.set_attributes([tag("x" * MAX_ITEM_BYTES)]),
        lambda join: join.add_attributes([attribute_set("k" * (MAX_NAME + 1), {})]),
        lambda join: join.modify_attributes([tag("first")], [tag("x" * MAX_ITEM_BYTES)]),
        lambda join: join.modify_attributes(
            TOO_MANY[: MAX_UPDATES + 1], [None] * (MAX_UPDATES + 1)
        ),
    ],
)
@virtually
async def test_a_change_that_registrars_refuse_raises_and_changes_nothing(
    change: Callable[[Join], None],
) -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    before, calls = world.join.item, list(world.registrars["R"].calls)
    with pytest.raises(ValueError, match=r"at most|must have 1 to"):
        change(world.join)
    await asyncio.sleep(1)
    assert world.join.item == before
    assert world.registrars["R"].calls == calls
    assert [each.id for each in world.join.registrars()] == ["R"]
    await world.close()


@virtually
async def test_an_item_that_registrars_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        Join(Item("", attributes=tuple(TOO_MANY)))
    with pytest.raises(ValueError, match="must be a UUID"):
        Join(Item("mine"))


@virtually
async def test_close_cancels_a_registration_that_was_being_made() -> None:
    world = World()
    world.announce("R")
    while not world.registrars["R"].calls:  # noqa: ASYNC110  the call takes 0.01 s
        await asyncio.sleep(0.001)
    assert world.registrars["R"].item is None
    await world.join.close()
    assert world.registrars["R"].item is None
    assert world.registrars["R"].calls[:2] == ["register", "cancel"]
    await world.discovery.close()


@virtually
async def test_abort_during_a_registration_disconnects_and_raises_nothing() -> None:
    world = World(Item(MINE))
    registrar = world.registrars["R"]
    registrar.is_hanging = True
    world.announce("R")
    while not registrar.calls:  # noqa: ASYNC110  the call hangs
        await asyncio.sleep(0.001)
    (membership,) = world.join._members.values()
    await membership.leave(cancels=False)
    assert registrar.calls == ["register", "disconnect"]
    await world.close()


@virtually
async def test_a_registration_that_hangs_until_the_end_of_close_is_not_made_later() -> None:
    world = World()
    registrars = list(world.registrars.values())
    for registrar in registrars:
        registrar.is_hanging = True
    world.announce("R", "S")
    await asyncio.sleep(1)
    assert sum("register" in each.calls for each in registrars) == 1  # the other waits for the id
    leaving = [asyncio.create_task(each.leave()) for each in world.join._members.values()]
    await asyncio.sleep(CLOSE_S / 2)
    for task in leaving:
        task.cancel()  # as `close` does when its time is over
    await asyncio.wait(leaving)
    assert [each.calls[-1] for each in registrars] == ["disconnect"] * 2
    for registrar in registrars:
        registrar.is_hanging = False
    await asyncio.sleep(60)
    assert [each.calls[-1] for each in registrars] == ["disconnect"] * 2
    await world.close()


@virtually
async def test_changes_made_while_another_registrar_chooses_the_id_are_sent_once() -> None:
    world = World()
    world.announce("R", "S")
    registrars = world.registrars.values()
    while not any(each.calls for each in registrars):  # noqa: ASYNC110  the call takes 0.01 s
        await asyncio.sleep(0.001)
    assert sum(len(each.calls) for each in registrars) == 1  # the other one waits for the id
    world.join.modify_attributes([tag("first")], [tag("second")])
    world.join.add_attributes([tag("first")])
    await asyncio.sleep(1)
    assert [*map(world.tags, "RS")] == [["second", "first"]] * 2
    assert sorted(each.calls for each in registrars) == [
        ["register"],
        ["register", "modify", "add"],
    ]
    await world.close()


@virtually
async def test_waits_after_errors_begin_again_after_a_success() -> None:
    world = World()
    world.announce("R")
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    for _ in range(8):
        world.registrars["R"].errors["add"] = [ConnectionLost("lost")]
        began = loop.time()
        world.join.add_attributes([tag(f"at {began}")])
        while f"at {began}" not in world.tags("R"):  # noqa: ASYNC110  it is asked for
            await asyncio.sleep(0.1)
        assert loop.time() - began < 2.0, "each is the first error after a success"
    await world.close()
