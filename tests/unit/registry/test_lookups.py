"""Lookups: freshness, pages, and items that cannot be used."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.errors import Compacted
from leasehold.registry import service as service_module
from leasehold.registry.item_feed import MAX_UNDECODABLE_BYTES, IndexNotReady, ItemFeed
from leasehold.registry.messages import ITEMS, UNDECODABLE, item_key, stored_item
from leasehold.registry.own_services import REGISTRAR, SERVICES, own_items, registrar_id
from leasehold.registry.state import EVERYTHING, Health, ItemVersion, ServiceType, Template
from leasehold.registry.storage import ItemStorage, cookie_of
from tests.support.registry_stage import (
    A,
    B,
    C,
    RegistryStage,
    about,
    item,
    web,
    without_progress,
)

WEB = Template(types=(ServiceType("web"),))
OWN = len(own_items(0))
"""The registrar and the other services of a server, which are items, too."""


def test_at_most_limit_items_and_the_total_are_returned() -> None:
    with RegistryStage() as stage:
        for each in (C, A, B):
            stage.register(web(each))
        page = stage.lookup(limit=2)
        assert len(page.items) == 2
        assert page.total == 3
        assert stage.ids() == [A, B, C]


def test_a_limit_of_0_gives_the_total_only() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        page = stage.lookup(limit=0)
        assert (page.items, page.total) == ([], 1)


def test_a_negative_limit_is_refused() -> None:
    with RegistryStage() as stage, pytest.raises(ValueError, match="at least 0, got -1"):
        stage.lookup(limit=-1)


def test_one_is_chosen_at_random_or_none() -> None:
    with RegistryStage() as stage:
        assert stage.run(stage.service.one, WEB).items == []
        for each in (A, B, C):
            stage.register(web(each))
        found = {stage.run(stage.service.one, WEB).items[0] for _ in range(50)}
        assert len(found) == 3


def test_the_registrar_is_an_item_without_a_key() -> None:
    with RegistryStage() as stage:
        of_registrars = Template(types=(ServiceType(SERVICES[REGISTRAR]),))
        assert stage.ids(of_registrars) == [registrar_id(stage.engine.cluster_id)]
        assert stage.stored() == []
        stage.pass_time(1e5)
        assert len(stage.ids(of_registrars)) == 1


def test_a_lookup_writes_nothing() -> None:
    with RegistryStage() as stage:
        before = stage.revision
        stage.lookup(EVERYTHING)
        assert stage.revision == before


def test_passing_gives_items_for_use_only() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        stage.register(replace(web(B), health=Health.FAILING))
        stage.register(replace(web(C), health=Health.MAINTENANCE))
        assert stage.ids(passing=True) == [A]
        assert stage.ids() == [A, B, C]


# Freshness.


def test_a_lookup_sees_every_registration_that_was_answered_before_at_any_server() -> None:
    with RegistryStage() as stage:
        other = stage.second_service()
        for number in range(10):
            stage.register(web())
            assert stage.run(other.lookup, WEB, 0).total == number + 1


def test_a_lookup_sees_registrations_after_writes_of_other_keys() -> None:
    with RegistryStage() as stage:
        stage.lookup()
        stage.register(web(A))
        for _ in range(3):
            stage.run(stage.engine.put, b"other", b"")
        assert stage.ids() == [A]


def test_a_stale_lookup_does_not_ask_the_engine() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        stage.lookup()
        stage.faulty.calls.clear()
        stage.faulty.is_cut_off = True
        assert stage.ids(stale=True) == [A]
        assert stage.faulty.calls == []


def test_lookups_that_arrive_together_share_a_question() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        stage.lookup()
        stage.faulty.calls.clear()
        stage.faulty.delay_s = 0.1

        async def many() -> None:
            await asyncio.gather(*(stage.service.lookup(WEB, 1) for _ in range(20)))

        stage.run(many)
        assert stage.faulty.calls == ["range"]


def test_a_lookup_does_not_use_a_question_that_was_sent_before_it_arrived() -> None:
    with RegistryStage() as stage:
        stage.lookup()
        other = stage.second_service()
        stage.run(other.lookup, WEB, 0)
        stage.faulty.delay_s = 1.0

        async def scene() -> int:
            early = asyncio.ensure_future(stage.service.lookup(WEB, 0))
            await asyncio.sleep(0.6)  # its question was answered, and the answer is on its way
            await other.register(web(A), 30.0)
            late = await stage.service.lookup(WEB, 0)
            await early
            return late.total

        assert stage.run(scene) == 1


def test_an_engine_that_does_not_answer_fails_a_lookup() -> None:
    with RegistryStage() as stage:
        stage.lookup()
        stage.faulty.is_cut_off = True
        with pytest.raises(IndexNotReady, match="cannot answer now"):
            stage.lookup()


def test_progress_that_cannot_be_trusted_is_replaced_by_a_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_progress(monkeypatch)
    with RegistryStage() as stage:
        version = stage.register(web(A))
        for _ in range(3):
            stage.run(stage.engine.put, b"other", b"")
            assert stage.ids() == [A]
        stage.run(ItemStorage(stage.engine, stage.policy).cancel, cookie_of(version))
        assert stage.ids() == []


def test_a_lookup_while_the_index_is_loading_is_unavailable() -> None:
    with RegistryStage() as stage:
        stage.faulty.is_cut_off = True
        began = stage.now
        with pytest.raises(IndexNotReady, match="being loaded"):
            stage.lookup()
        assert stage.now - began == pytest.approx(1.0, abs=0.1)
        assert IndexNotReady.status.name == "UNAVAILABLE"


def test_the_index_is_loaded_at_the_start_if_there_are_items() -> None:
    with RegistryStage() as stage:
        assert "watch" not in stage.faulty.calls
        stage.register(web(A), 1000.0)
        stage.crash()
        stage.pass_time()
        assert stage.service.feed.items == 1


def test_a_server_without_items_has_no_watch() -> None:
    with RegistryStage() as stage:
        stage.pass_time(1000.0)
        assert "watch" not in stage.faulty.calls
        assert stage.revision == 1


# Expired and undecodable items.


def test_expired_items_never_match_reaped_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with RegistryStage() as stage:
        stage.register(web(A), 10.0)
        stage.register(web(B), 100.0)
        stage.lookup()
        ended = {stage.service.index.get(A).lease}  # type: ignore[union-attr]
        monkeypatch.setattr(EmbeddedEngine, "has_ended", lambda _, lease: lease in ended)
        assert len(stage.stored()) == 2
        assert stage.ids() == [B]
        assert stage.lookup(limit=0).total == 1
        assert stage.run(stage.service.one, WEB).total == 1


def test_has_ended_is_true_from_the_deadline_on() -> None:
    with RegistryStage() as stage:
        lease = stage.run(stage.engine.grant, 10.0).id
        stage.run(asyncio.sleep, 9.0)
        assert not stage.host.call(lambda: stage.engine.has_ended(lease))
        stage.run(asyncio.sleep, 1.5)
        assert stage.host.call(lambda: stage.engine.has_ended(lease))
        assert not stage.host.call(lambda: stage.engine.has_ended(0))
        assert stage.host.call(lambda: stage.engine.has_ended(12345))


def test_an_item_that_cannot_be_decoded_stands_in_a_lookup_of_everything_and_the_rest_is_fine() -> (
    None
):
    with RegistryStage() as stage:
        stage.register(web(A))
        stage.run(stage.engine.put, item_key(B), b"\xff\xff\xff")
        page = stage.lookup(EVERYTHING)
        assert page.total == OWN + 2
        assert page.items[1] == UNDECODABLE + b"\xff\xff\xff"
        assert stage.ids() == [A]
        assert stage.lookup(EVERYTHING, passing=True).total == OWN + 1
        assert len(stage.service.feed.undecodable) == 1
        stage.run(stage.engine.delete, item_key(B))
        assert stage.lookup(EVERYTHING).total == OWN + 1
        assert stage.service.feed.items == 1


def test_an_item_under_the_key_of_another_cannot_be_decoded() -> None:
    with RegistryStage() as stage:
        value = stored_item(ItemVersion(web(A), "x", 0, 0.0, 0))
        stage.run(stage.engine.put, item_key(B), value)
        assert stage.ids() == []
        assert stage.lookup(EVERYTHING).total == OWN + 1


def test_an_item_that_cannot_be_decoded_can_be_replaced() -> None:
    with RegistryStage() as stage:
        stage.run(stage.engine.put, item_key(A), b"\xff\xff\xff")
        assert stage.lookup(EVERYTHING).total == OWN + 1
        stage.register(web(A))
        assert stage.ids() == [A]
        assert not stage.service.feed.undecodable


@pytest.mark.parametrize("is_trusted", [True, False], ids=["progress", "no progress"])
def test_keys_of_other_programs_do_not_stop_lookups(
    monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    if not is_trusted:
        without_progress(monkeypatch)
    with RegistryStage() as stage:
        stage.register(web(A))
        own = item_key(registrar_id(stage.engine.cluster_id))
        foreign = (own, ITEMS + b"\xff", ITEMS + b"\xfe")
        for key in foreign:
            stage.run(stage.engine.put, key, b"x")
            stage.run(stage.engine.put, b"other", b"")
            assert stage.ids() == [A]
        assert stage.lookup(EVERYTHING).total == OWN + 3
        for key in foreign:
            stage.run(stage.engine.delete, key)
            stage.run(stage.engine.put, b"other", b"")
            assert stage.ids() == [A]
        assert stage.lookup(EVERYTHING).total == OWN + 1


def test_only_the_beginning_of_a_value_that_cannot_be_decoded_is_kept() -> None:
    with RegistryStage() as stage:
        stage.run(stage.engine.put, item_key(A), b"\xff" * 100_000)
        page = stage.lookup(EVERYTHING)
        assert max(map(len, page.items)) <= MAX_UNDECODABLE_BYTES + len(UNDECODABLE)


def test_lookups_that_fail_while_the_index_is_behind_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        assert stage.ids() == [A]
        monkeypatch.setattr(ItemFeed, "_settle", lambda *_, **__: None)
        for _ in range(3):
            stage.run(stage.engine.put, b"other", b"")
            with pytest.raises(IndexNotReady, match="cannot answer now"):
                stage.lookup()
        stage.pass_time(60.0)
        assert not stage.service.feed._waiting


# Pages.


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "PAGE_ITEMS", 2)


def _ids(number: int) -> list[str]:
    return [f"00000000-0000-4000-8000-{place:012d}" for place in range(number)]


def _all_pages(stage: RegistryStage, template: Template = WEB) -> list[str]:
    page = stage.lookup(template)
    found = list(page.items)
    while page.next:
        page = stage.run(stage.service.further, template, 1000, page.next, page.revision)
        found += page.items
    return [data[2:38].decode() for data in found]


@pytest.mark.usefixtures("small_pages")
def test_pages_continue_in_the_order_of_ids() -> None:
    with RegistryStage() as stage:
        for each in _ids(5):
            stage.register(web(each))
        assert len(stage.lookup().items) == 2
        assert stage.lookup().total == 5
        assert _all_pages(stage) == _ids(5)


def test_a_page_has_at_most_4_mib() -> None:
    with RegistryStage() as stage:
        for each in _ids(20):
            stage.register(web(each, text="x" * 250_000))
        page = stage.lookup()
        assert 3_500_000 < sum(map(len, page.items)) <= 4 * 1024 * 1024
        assert page.next
        assert _all_pages(stage) == _ids(20)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "read again"])
def test_pages_are_of_one_revision(is_kept: bool) -> None:
    with RegistryStage() as stage:
        for each in _ids(5)[1:]:
            stage.register(web(each))
        page = stage.lookup()
        gone = stage.register(web(_ids(5)[4]))
        stage.cancel(gone)
        stage.register(item(_ids(5)[3], "other"))
        stage.register(web(_ids(6)[5]))
        stage.lookup()
        if not is_kept:
            stage.service._snapshots.clear()
        rest = stage.run(stage.service.further, WEB, 1000, page.next, page.revision)
        assert [data[2:38].decode() for data in rest.items] == _ids(5)[3:]
        assert (rest.total, rest.revision, rest.next) == (4, page.revision, "")


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("is_kept", [True, False])
def test_later_pages_have_what_was_for_use_at_their_revision(is_kept: bool) -> None:
    with RegistryStage() as stage:
        failing, *others = [stage.register(web(each)) for each in reversed(_ids(5))]
        stage.change(failing, lambda each: replace(each, health=Health.FAILING))
        page = stage.lookup(passing=True)
        assert (len(page.items), page.total) == (2, 4)
        stage.change(others[0], lambda each: replace(each, health=Health.FAILING))
        stage.change(failing, lambda each: replace(each, health=Health.PASSING))
        stage.lookup()
        if not is_kept:
            stage.service._snapshots.clear()
        further = partial(stage.service.further, passing=True)
        rest = stage.run(further, WEB, 1000, page.next, page.revision)
        assert [data[2:38].decode() for data in rest.items] == _ids(5)[2:4]
        assert rest.total == 4


@pytest.mark.usefixtures("small_pages")
def test_the_matches_of_only_some_lookups_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MAX_SNAPSHOTS", 2)
    with RegistryStage() as stage:
        pages = []
        for each in _ids(6):
            stage.register(web(each))
            pages.append(stage.lookup())
        assert len(stage.service._snapshots) == 2
        for count, page in enumerate(pages[2:], 3):
            rest = stage.run(stage.service.further, WEB, 1000, page.next, page.revision)
            assert [data[2:38].decode() for data in rest.items] == _ids(6)[2:count][:2]
        assert len(stage.service._snapshots) == 2


@pytest.mark.usefixtures("small_pages")
def test_a_lookup_with_a_limit_does_not_shorten_the_pages_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RegistryStage() as stage:
        for each in _ids(6):
            stage.register(web(each))
        page = stage.lookup()
        monkeypatch.setattr(service_module, "PAGE_BYTES", 1)  # it has a next page, too
        assert stage.lookup(limit=2).next
        monkeypatch.undo()
        rest = stage.run(stage.service.further, WEB, 1000, page.next, page.revision)
        assert [data[2:38].decode() for data in rest.items] == _ids(6)[2:]


@pytest.mark.usefixtures("small_pages")
def test_a_key_with_the_id_of_the_registrar_does_not_break_later_pages() -> None:
    with RegistryStage() as stage:
        for each in _ids(3):
            stage.register(web(each))
        stage.run(stage.engine.put, item_key(registrar_id(stage.engine.cluster_id)), b"x")
        page = stage.lookup(EVERYTHING)
        stage.register(web(_ids(4)[3]))
        stage.lookup()
        stage.service._snapshots.clear()
        found, total = len(page.items), page.total
        while page.next:
            page = stage.run(stage.service.further, EVERYTHING, 1000, page.next, page.revision)
            found += len(page.items)
        assert found == total == OWN + 3


@pytest.mark.usefixtures("small_pages")
def test_pages_of_an_index_that_has_not_changed_are_not_read_from_the_engine() -> None:
    with RegistryStage() as stage:
        for each in _ids(3):
            stage.register(web(each))
        page = stage.lookup()
        stage.service._snapshots.clear()
        stage.faulty.calls.clear()
        rest = stage.run(stage.service.further, WEB, 1000, page.next, page.revision)
        assert len(rest.items) == 1
        assert stage.faulty.calls == []


@pytest.mark.usefixtures("small_pages")
def test_a_page_of_a_compacted_revision_is_refused() -> None:
    with RegistryStage() as stage:
        for each in _ids(3):
            stage.register(web(each))
        page = stage.lookup()
        stage.register(web())
        stage.lookup()
        stage.run(stage.engine.compact, stage.revision)
        stage.service._snapshots.clear()
        with pytest.raises(Compacted):
            stage.run(stage.service.further, WEB, 1000, page.next, page.revision)


@pytest.mark.usefixtures("small_pages")
def test_a_limit_below_a_page_can_be_continued() -> None:
    with RegistryStage() as stage:
        for each in _ids(4):
            stage.register(web(each))
        page = stage.lookup(limit=1)
        assert (len(page.items), page.total) == (1, 4)
        rest = stage.run(stage.service.further, WEB, 2, page.next, page.revision)
        assert [data[2:38].decode() for data in rest.items] == _ids(4)[1:3]


# What the index has missed.


def test_changes_that_were_compacted_before_they_were_read_are_found_by_reading_again() -> None:
    with RegistryStage() as stage:
        gone = stage.register(web(A))
        stage.register(web(B, floor=1))
        stage.lookup()
        stage.faulty.is_deaf = True
        storage = ItemStorage(stage.engine, stage.policy)
        stage.cancel(gone)
        stage.run(storage.register, web(B, floor=2), 30.0)
        stage.run(storage.register, web(C), 30.0)
        stage.faulty.is_deaf = False
        stage.faulty.break_watches(Compacted(1, stage.revision))
        stage.pass_time(5.0)
        assert stage.ids() == [B, C]
        assert stage.found()[0].attributes == (about(floor=2),)


def test_many_items_are_read_in_pages() -> None:
    with RegistryStage() as stage:
        value = stored_item(ItemVersion(web(A), "x", 0, 0.0, 0))

        async def fill() -> None:
            for each in _ids(2500):
                await stage.engine.put(
                    ITEMS + each.encode(), value.replace(A.encode(), each.encode())
                )

        stage.run(fill)
        assert stage.lookup(limit=0).total == 2500
