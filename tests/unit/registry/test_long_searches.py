"""Searches of many items: in slices, and of one revision although the index changes meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.registry import index as index_module
from leasehold.registry import service as service_module
from leasehold.registry.index import ItemIndex
from leasehold.registry.item_feed import IndexChange
from leasehold.registry.messages import template_message
from leasehold.registry.service import RegistryService
from leasehold.registry.state import (
    EVERYTHING,
    AttributeSet,
    Item,
    ItemVersion,
    ServiceType,
    Template,
    attribute_set,
)
from leasehold.wire import registry_pb2 as pb
from tests.support.registry_stage import RegistryStage
from tests.unit.registry.test_registry_rpc import FakeStream, Wire

WEB = Template(types=(ServiceType("web"),))
TAGGED = Template(attributes=(AttributeSet("Tag"),))
BOTH = Template(types=WEB.types, attributes=TAGGED.attributes)
TEMPLATES = (EVERYTHING, WEB, TAGGED, BOTH)
MANY = 3_000
LEASE = 7


def item_id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def version(number: int, *, lease: int = LEASE, is_web: bool = True, tag: str = "") -> ItemVersion:
    types = (ServiceType("web"),) if is_web else ()
    sets = (attribute_set("Tag", {"tag": tag}),) if tag else ()
    return ItemVersion(Item(item_id(number), types, sets), "r", lease, 10.0, 1)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "PARTS", 8)
    monkeypatch.setattr(index_module, "LARGE", 16)
    monkeypatch.setattr(index_module, "STEP", 3)


# The index.


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("seed", range(20))
def test_a_search_finds_what_matched_when_it_began_however_the_index_changes(seed: int) -> None:
    random = Random(seed)
    index = ItemIndex()

    def change() -> None:
        number = random.randrange(60)
        made = version(number, is_web=random.random() < 0.7, tag=random.choice(["", "a", "b"]))
        is_gone = random.random() < random.choice([0.1, 0.9])  # sets grow, and shrink again
        index.apply(item_id(number), None if is_gone else made, index.revision + 1)
        index.advance(index.revision + 1)

    for _ in range(100):
        change()
    under_way: list[tuple[Iterator[Any], list[ItemVersion], list[ItemVersion]]] = []
    for _ in range(300):
        if random.random() < 0.2:
            template = random.choice(TEMPLATES)
            expected, begun = index.matching(template), index.search(template)
            under_way.append((begun, list(next(begun, ())), expected))
        for steps, found, _ in under_way:
            found.extend(next(steps, ()))
        for _ in range(random.randrange(20)):
            change()
    for steps, found, expected in under_way:
        for step in steps:
            found.extend(step)
        assert len(found) == len(expected)
        assert set(found) == set(expected)
    assert len(under_way) > 30


@pytest.mark.usefixtures("small_parts")
def test_a_search_that_is_given_up_costs_nothing_any_more() -> None:
    index = ItemIndex()
    for number in range(50):
        index.apply(item_id(number), version(number), 1)
    steps = index.search(EVERYTHING)
    next(steps)
    assert len(index._searches) == 1
    steps.close()
    assert index._searches == []


# The service.


class Turns:
    """Counts the items that are looked at, and the ids that are compared, in each turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = self.longest = self.turns = 0
        self._is_running = False
        id_of = service_module._id_of
        monkeypatch.setattr(EmbeddedEngine, "has_ended", lambda _, lease: self._count(False))
        monkeypatch.setattr(service_module, "_id_of", lambda match: self._count(id_of(match)))

    def _count(self, value: Any) -> Any:
        self.seen += 1
        return value

    def _turn(self) -> None:
        self.turns += 1
        self.longest, self.seen = max(self.longest, self.seen), 0
        if self._is_running:
            asyncio.get_running_loop().call_soon(self._turn)

    async def of(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.seen = self.longest = self.turns = 0
        self._is_running = True
        asyncio.get_running_loop().call_soon(self._turn)
        try:
            return await call()
        finally:
            self._is_running = False
            self._turn()


@pytest.fixture(name="stage")
def make_stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryStage]:
    """Return a registry with many items; each slice is used up after one step."""
    monkeypatch.setattr("leasehold.store.slices.SLICE_S", 0.0)
    monkeypatch.setattr(index_module, "LARGE", 100)
    monkeypatch.setattr(EmbeddedEngine, "has_ended", lambda _, lease: False)
    with RegistryStage() as stage:
        stage.run(stage.service.matching, EVERYTHING)
        for number in range(MANY):
            stage.service.index.apply(item_id(number), version(number, tag="a"), stage.revision)
        yield stage


CALLS: dict[str, Callable[[RegistryService, Template], Awaitable[Any]]] = {
    "all": lambda service, template: service.lookup(template, MANY),
    "total": lambda service, template: service.lookup(template, 0),
    "one": lambda service, template: service.one(template),
    "matching": lambda service, template: service.matching(template),
    "further": lambda service, template: service.further(
        template, 10, item_id(5), service.index.revision
    ),
}


@pytest.mark.parametrize("template", TEMPLATES, ids=["everything", "type", "kind", "both"])
@pytest.mark.parametrize("call", CALLS)
def test_a_lookup_looks_at_few_items_in_one_turn(
    stage: RegistryStage, monkeypatch: pytest.MonkeyPatch, call: str, template: Template
) -> None:
    turns = Turns(monkeypatch)
    stage.run(turns.of, lambda: CALLS[call](stage.service, template))
    assert turns.turns >= MANY / index_module.STEP
    assert turns.longest < MANY


def test_a_lookup_of_few_items_takes_one_turn(
    stage: RegistryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.store.slices.SLICE_S", 1.0)
    turns = Turns(monkeypatch)
    stage.run(turns.of, lambda: stage.service.lookup(Template(item_id(1)), 10, stale=True))
    assert turns.turns == 1


def test_many_matches_are_returned_in_the_order_of_their_ids(stage: RegistryStage) -> None:
    page = stage.lookup(WEB, limit=MANY)
    assert page.total == MANY
    assert [data[2:38].decode() for data in page.items] == [item_id(each) for each in range(MANY)]


@pytest.mark.parametrize("limit", [0, 1, 20, 1_500])
def test_the_first_of_many_matches_are_returned(
    stage: RegistryStage, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(service_module, "PAGE_ITEMS", 2_000)
    page = stage.lookup(WEB, limit=limit)
    assert page.total == MANY
    assert [data[2:38].decode() for data in page.items] == [item_id(each) for each in range(limit)]


def test_one_of_many_is_chosen_with_equal_chances(
    stage: RegistryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "STEP", 7)
    template = Template(types=(ServiceType("rare"),))
    for number in range(20):
        made = ItemVersion(Item(item_id(number), template.types), "r", LEASE, 10.0, 1)
        stage.service.index.apply(item_id(number), made, stage.revision)
    chosen = [stage.run(stage.service.one, template).items[0] for _ in range(2_000)]
    counts = [chosen.count(each) for each in set(chosen)]
    assert len(counts) == 20
    assert max(counts) < 2 * min(counts) + 50


class Changing:
    """Changes the index after the first slice of a search."""

    def __init__(self, stage: RegistryStage, change: Callable[[ItemIndex], None]) -> None:
        self._stage = stage
        self._change = change

    async def during(self, call: Callable[[], Awaitable[Any]]) -> Any:
        task = asyncio.ensure_future(call())
        index = self._stage.service.index
        while not index._searches:  # noqa: ASYNC110  a slice is a turn
            await asyncio.sleep(0)
        self._change(index)
        index.advance(index.revision + 1)
        return await task


def test_a_lookup_is_of_the_revision_that_it_returns(stage: RegistryStage) -> None:
    def change(index: ItemIndex) -> None:
        for number in range(MANY):
            index.apply(item_id(number), None, index.revision + 1)
            index.apply(item_id(MANY + number), version(MANY + number), index.revision + 1)

    revision = stage.service.index.revision
    changing = Changing(stage, change)
    page = stage.run(changing.during, lambda: stage.service.lookup(WEB, MANY))
    assert (page.total, page.revision) == (MANY, revision)
    assert page.items[0][2:38].decode() == item_id(0)


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "gone"])
def test_an_item_whose_lease_ends_during_a_search_is_found_if_it_was_replaced(
    stage: RegistryStage, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    ended: set[int] = set()
    monkeypatch.setattr(EmbeddedEngine, "has_ended", lambda _, lease: lease in ended)

    def change(index: ItemIndex) -> None:
        for number in range(MANY):
            new = version(number, lease=LEASE + 1) if is_replaced else None
            index.apply(item_id(number), new, index.revision + 1)
        ended.add(LEASE)

    found = stage.run(Changing(stage, change).during, lambda: stage.service.lookup(WEB, 0))
    assert (found.total == MANY) == is_replaced


# Watches and browsing.


def test_a_watch_sends_changes_during_its_search_after_the_items(stage: RegistryStage) -> None:
    rpc = Wire(stage).rpc
    stream = FakeStream()
    request = pb.WatchItemsRequest(template=template_message(WEB)).SerializeToString()
    changed = version(MANY - 1, tag="new")

    async def watch() -> None:
        stream.begin(rpc.watches.method().open, request)
        index = stage.service.index
        while not index._searches:  # noqa: ASYNC110  a slice is a turn
            await asyncio.sleep(0)
        before, after = index.apply(changed.item.id, changed, index.revision + 1)
        change = IndexChange(changed.item.id, before, after, index.revision + 1)
        index.advance(index.revision + 1)
        for listener in stage.service.feed.listeners:
            listener(change)
        assert stream.items == []

    stage.run(watch)
    stage.pass_time()
    assert sorted(stream.items) == [item_id(each) for each in range(MANY)]
    assert len(stream.changes) == 1


def test_browsing_many_items_finds_a_field_that_only_few_have(stage: RegistryStage) -> None:
    odd = ItemVersion(
        Item(item_id(0), (), (attribute_set("Tag", {"color": "red"}),)), "r", LEASE, 10.0, 1
    )
    stage.service.index.apply(item_id(0), odd, stage.revision)
    wire = Wire(stage)
    found = wire.browse(
        template=template_message(TAGGED), subject=pb.BrowseRequest.FIELD_VALUES, field="color"
    )
    assert found == ['"red"']
