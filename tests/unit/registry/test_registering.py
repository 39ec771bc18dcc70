"""Registering items, replacing and changing them."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from leasehold import ANY, FOREVER
from leasehold.errors import ConnectionLost, UnknownLease
from leasehold.registry.own_services import own_items
from leasehold.registry.state import add_attributes, modify_attributes, set_attributes
from leasehold.registry.storage import cookie_of, descriptor_id
from tests.support.faulty_engine import Fault
from tests.support.registry_stage import (
    WEB,
    A,
    B,
    RegistryStage,
    about,
    descriptor,
    item,
    moved_to,
    web,
)


def test_an_item_without_an_id_gets_one() -> None:
    with RegistryStage() as stage:
        first, second = stage.register(web()), stage.register(web())
        assert stage.ids() == sorted([first.item.id, second.item.id])


def test_registering_again_with_an_id_replaces_and_cancels_the_old_lease() -> None:
    with RegistryStage() as stage:
        first = stage.register(web(A, "one"))
        second = stage.register(web(A, "two"))
        assert [each.endpoint for each in stage.found()] == ["two"]
        assert stage.leases_left() == 1
        assert isinstance(stage.renew(cookie_of(first)), UnknownLease)
        assert stage.renew(cookie_of(second)) == 30.0


def test_the_new_item_is_written_before_the_old_lease_is_revoked() -> None:
    with RegistryStage() as stage:
        stage.register(web(A, "one"))
        stage.faulty.calls.clear()
        stage.register(web(A, "two"))
        calls = [call for call in stage.faulty.calls if call in {"txn", "revoke"}]
        assert calls == ["txn", "revoke"]


def test_an_old_lease_that_cannot_be_revoked_now_does_not_fail_the_registration() -> None:
    with RegistryStage() as stage:
        stage.register(web(A, "one"))
        for number in range(1, 4):
            stage.faulty.trouble_with("revoke", number, Fault.REQUEST_LOST)
        stage.register(web(A, "two"))
        stage.pass_time(5.0)
        assert stage.leases_left() == 1


def test_without_an_id_an_item_with_an_equal_descriptor_is_replaced_and_its_id_reused() -> None:
    with RegistryStage() as stage:
        known = replace(web(A, "one"), descriptor=descriptor("x"))
        stage.register(known)
        again = stage.register(replace(known, id="", endpoint="two"))
        other = stage.register(replace(known, id="", descriptor=descriptor("y")))
        assert again.item.id == A
        assert other.item.id != A
        assert len(stage.ids()) == 2


def test_an_equal_descriptor_is_found_at_another_server_immediately() -> None:
    with RegistryStage() as stage:
        other = stage.second_service()
        assert stage.run(other.lookup, WEB, 0).total == 0
        described = replace(web(A), descriptor=descriptor("x"))
        stage.register(described)
        again = stage.run(other.register, replace(described, id=""), 30.0)
        assert again.item.id == A


def test_concurrent_registrations_of_one_descriptor_write_one_key() -> None:
    with RegistryStage() as stage:
        other = stage.second_service()
        described = replace(web(), descriptor=descriptor("x"))

        async def both() -> None:
            await asyncio.gather(
                stage.service.register(described, 30.0), other.register(described, 30.0)
            )

        stage.run(both)
        assert stage.ids() == [descriptor_id(descriptor("x"))]
        assert stage.leases_left() == 1


def test_registering_the_same_item_twice_leaves_one() -> None:
    with RegistryStage() as stage:
        stage.register(web(A))
        stage.register(web(A))
        assert stage.ids() == [A]
        assert stage.leases_left() == 1


def test_an_item_may_be_under_a_lease_that_exists_and_vanishes_with_it() -> None:
    with RegistryStage() as stage:
        lease = stage.run(stage.engine.grant, 20.0).id
        first = stage.register(web(A), lease=lease)
        stage.register(web(B), lease=lease)
        assert first.ttl_s == 0.0
        assert stage.ids() == [A, B]
        stage.run(stage.engine.revoke, lease)
        assert stage.ids() == []


def test_a_lease_of_the_client_is_never_revoked_by_the_registrar() -> None:
    with RegistryStage() as stage:
        lease = stage.run(stage.engine.grant, 20.0).id
        first = stage.register(web(A), lease=lease)
        stage.register(web(A))
        second = stage.register(web(B), lease=lease)
        assert isinstance(stage.cancel(first), UnknownLease)
        assert stage.cancel(second) == 0.0
        assert stage.ids() == [A]
        assert stage.run(stage.engine.time_to_live, lease).key_count == 0


def test_a_lease_that_has_ended_is_refused() -> None:
    with RegistryStage() as stage:
        with pytest.raises(UnknownLease):
            stage.register(web(A), lease=12345)
        assert stage.stored() == []


def test_the_registrars_own_id_is_refused_and_so_are_those_of_other_services() -> None:
    with RegistryStage() as stage:
        for own in own_items(stage.engine.cluster_id).values():
            with pytest.raises(ValueError, match="registrar itself"):
                stage.register(web(own.id))
        assert stage.leases_left() == 0


def test_an_item_ends_with_its_lease() -> None:
    with RegistryStage() as stage:
        stage.register(web(A), 10.0)
        stage.pass_time(9.0)
        assert stage.ids() == [A]
        stage.pass_time(1.5)
        assert stage.ids() == []
        assert stage.stored() == []


def test_terms_are_bounded_and_any_is_the_default() -> None:
    with RegistryStage(maximum=100.0, default=50.0) as stage:
        assert stage.register(web(A), 20.0).ttl_s == 20.0
        assert stage.register(web(A), 1000.0).ttl_s == 100.0
        assert stage.register(web(A), FOREVER).ttl_s == 100.0
        assert stage.register(web(A), ANY).ttl_s == 50.0


def test_items_are_there_after_a_restart() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 100.0)
        stage.crash(5.0)
        assert stage.ids() == [A]
        assert stage.renew(cookie_of(version)) == 100.0


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_write_without_an_answer_is_repeated_once(fault: Fault) -> None:
    with RegistryStage() as stage:
        stage.register(web(A, "one"))
        stage.faulty.trouble_with("txn", 1, fault)
        version = stage.register(web(A, "two"))
        assert [each.endpoint for each in stage.found()] == ["two"]
        assert stage.renew(cookie_of(version)) == 30.0
        assert stage.leases_left() == 1


def test_a_grant_without_an_answer_leaves_no_lease() -> None:
    with RegistryStage() as stage:
        stage.faulty.trouble_with("grant", 1, Fault.ANSWER_LOST)
        with pytest.raises(ConnectionLost):
            stage.register(web(A))
        stage.pass_time(5.0)
        assert stage.leases_left() == 0


# Changes.


def test_attributes_are_added_set_and_modified() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A, area="north"))
        stage.change(version, lambda each: add_attributes(each, [about(floor=2)]))
        assert stage.found()[0].attributes == (about(area="north"), about(floor=2))
        stage.change(
            version,
            lambda each: modify_attributes(
                each, [about(area="north"), about(floor=2)], [about(area="south"), None]
            ),
        )
        assert stage.found()[0].attributes == (about(area="south"),)
        stage.change(version, lambda each: set_attributes(each, []))
        assert stage.found()[0].attributes == ()


def test_a_change_that_changes_nothing_writes_nothing() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A, area="north"))
        before = stage.revision
        stage.change(version, lambda each: add_attributes(each, [about(area="north")]))
        assert stage.revision == before


def test_a_change_that_meets_another_is_applied_to_the_newer_state() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A))
        other = stage.second_service()

        async def both() -> None:
            cookie = cookie_of(version)
            await asyncio.gather(
                *(
                    service.storage.change(cookie, partial(add_attributes, sets=[about(n=n)]))
                    for n, service in enumerate((stage.service, other, stage.service, other))
                )
            )

        stage.run(both)
        assert set(stage.found()[0].attributes) == {about(n=n) for n in range(4)}


def test_a_change_after_expiry_is_unknown_lease() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 10.0)
        stage.pass_time(11.0)
        for endpoint in ("elsewhere", ""):  # a change, and none
            with pytest.raises(UnknownLease):
                stage.change(version, moved_to(endpoint))


def test_a_change_of_a_replaced_registration_is_unknown_lease() -> None:
    with RegistryStage() as stage:
        first = stage.register(web(A))
        stage.register(web(A))
        with pytest.raises(UnknownLease):
            stage.change(first, lambda each: add_attributes(each, [about(floor=2)]))
        assert stage.found()[0].attributes == ()


def test_a_change_keeps_the_lease_of_the_item() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 10.0)
        stage.pass_time(6.0)
        stage.change(version, lambda each: add_attributes(each, [about(floor=2)]))
        stage.pass_time(5.0)
        assert stage.ids() == []


def test_a_change_that_makes_an_item_too_large_is_refused() -> None:
    with RegistryStage() as stage:
        version = stage.register(item(A, "web", text="x" * 200_000))
        with pytest.raises(ValueError, match="at most 262,144 bytes"):
            stage.change(version, lambda each: add_attributes(each, [about(text="y" * 100_000)]))
        assert stage.lookup().total == 1
