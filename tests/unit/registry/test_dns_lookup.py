"""Services that DNS finds in the registry: what is kept for the next query, and until when."""

from random import Random

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.registry import dns_server
from leasehold.registry.dns_server import NamedLookup
from leasehold.registry.item_feed import IndexNotReady
from leasehold.registry.named_items import named_item
from leasehold.registry.service import RegistryService
from leasehold.registry.state import Health, Item, ItemVersion, Template
from tests.support.registry_stage import RegistryStage


class Searches:
    """Counts the searches of the registry."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        search = RegistryService.search

        async def counted(
            service: RegistryService, template: Template, *, passing: bool = False
        ) -> list[ItemVersion]:
            self.count += 1
            return await search(service, template, passing=passing)

        monkeypatch.setattr(RegistryService, "search", counted)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(monkeypatch)


def found(stage: RegistryStage, lookup: NamedLookup, name: str, tag: str | None = None) -> set[str]:
    return {item.endpoint for item in stage.run(lookup, name, tag)}


def lookup_of(stage: RegistryStage) -> NamedLookup:
    return NamedLookup(stage.service, Random(1))


def service(endpoint: str, *tags: str, health: Health = Health.PASSING) -> Item:
    return named_item("web", endpoint, tags, health=health)


def test_a_name_is_searched_once_until_the_items_change(searches: Searches) -> None:
    with RegistryStage() as stage:
        lookup = lookup_of(stage)
        stage.register(service("a:1", "x"))
        stage.register(service("b:1"))
        before = searches.count
        for _ in range(10):
            assert found(stage, lookup, "web") == {"a:1", "b:1"}
            assert found(stage, lookup, "web", "x") == {"a:1"}
            assert found(stage, lookup, "web", "y") == set()
        assert searches.count == before + 12  # names that are not found are not kept
        made = stage.register(service("c:1", "x"))
        assert found(stage, lookup, "web") == {"a:1", "b:1", "c:1"}
        assert found(stage, lookup, "web", "x") == {"a:1", "c:1"}
        stage.cancel(made)
        assert found(stage, lookup, "web") == {"a:1", "b:1"}
        assert stage.service.lookups == 33


def test_a_query_is_not_answered_by_an_index_that_is_behind() -> None:
    with RegistryStage() as stage:
        lookup = lookup_of(stage)
        stage.register(service("a:1"))
        assert found(stage, lookup, "web") == {"a:1"}
        stage.faulty.is_deaf = True
        stage.register(service("b:1"))
        with pytest.raises(IndexNotReady):
            found(stage, lookup, "web")


def test_an_item_whose_lease_has_ended_is_not_found_though_it_was_kept(
    monkeypatch: pytest.MonkeyPatch, searches: Searches
) -> None:
    monkeypatch.setattr(dns_server, "MAX_ANSWERS", 2)
    with RegistryStage() as stage:
        lookup = lookup_of(stage)
        versions = [stage.register(service(f"{name}:1")) for name in "abc"]
        assert len(found(stage, lookup, "web")) == 2
        before = searches.count
        ended = {stage.service.index.get(each.item.id).lease for each in versions[:2]}  # type: ignore[union-attr]
        monkeypatch.setattr(EmbeddedEngine, "has_ended", lambda _, lease: lease in ended)
        for _ in range(10):
            assert found(stage, lookup, "web") == {"c:1"}
        ended.add(stage.service.index.get(versions[2].item.id).lease)  # type: ignore[union-attr]
        assert found(stage, lookup, "web") == set()
        assert searches.count == before


def test_passing_services_are_preferred_and_a_name_without_any_exists() -> None:
    with RegistryStage() as stage:
        lookup = lookup_of(stage)
        stage.register(service("bad:1", health=Health.FAILING))
        assert found(stage, lookup, "web") == {"bad:1"}  # DNS distinguishes it from no such name
        stage.register(service("good:1"))
        assert found(stage, lookup, "web") == {"good:1"}


@pytest.mark.parametrize(("limit", "value"), [("MAX_KEPT_NAMES", 2), ("MAX_KEPT_ITEMS", 2)])
def test_only_some_names_are_kept(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch, searches: Searches
) -> None:
    monkeypatch.setattr(dns_server, limit, value)
    with RegistryStage() as stage:
        lookup = lookup_of(stage)
        for name in "abcd":
            stage.register(named_item(name, f"{name}:1"))
        for name in "abcd":
            assert found(stage, lookup, name) == {f"{name}:1"}
        before = searches.count
        assert found(stage, lookup, "d") == {"d:1"}
        assert searches.count == before
        assert found(stage, lookup, "a") == {"a:1"}
        assert searches.count == before + 1


def test_nothing_is_kept_while_the_items_are_read_again(searches: Searches) -> None:
    with RegistryStage() as stage:
        lookup = lookup_of(stage)
        made = stage.register(service("a:1"))
        assert found(stage, lookup, "web") == {"a:1"}
        index = stage.service.index
        index.last_change = stage.revision + 1  # some changes of that revision are applied
        before = searches.count
        assert found(stage, lookup, "web") == {"a:1"}
        index.apply(made.item.id, None, stage.revision + 1)
        assert found(stage, lookup, "web") == set()
        assert searches.count == before + 2
