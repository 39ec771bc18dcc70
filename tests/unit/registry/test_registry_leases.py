"""Leases of items and of registrations for events, in one batch."""

import pytest

from leasehold import ANY, FOREVER
from leasehold.errors import (
    ConnectionLost,
    EndReason,
    LeaseDenied,
    LeaseholdError,
    ShardLost,
    UnknownLease,
)
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.storage import cookie_of
from tests.support.faulty_engine import Fault
from tests.support.registry_stage import WEB, A, B, C, RegistryStage, item, web


def test_leases_of_items_and_of_registrations_for_events_batch_together() -> None:
    with RegistryStage() as stage:
        registration = stage.listen("l", WEB, ttl=100.0)
        first, second = stage.register(web(A), 100.0), stage.register(web(B), 100.0)
        stage.lookup()
        stage.faulty.calls.clear()
        wants = [
            (cookie_of(first), 100.0),
            (registration, 100.0),
            ("0" * 32, 100.0),
            (cookie_of(second), 100.0),
            (f"{C}.0000000000000000", 100.0),
            (17, 100.0),
        ]
        outcomes = stage.run(stage.leases.renew_all, wants)
        assert outcomes[:2] == [100.0, 100.0]
        assert outcomes[3] == 100.0
        assert [type(outcomes[place]) for place in (2, 4, 5)] == [UnknownLease] * 3
        assert stage.faulty.calls.count("renew_all") == 1
        stage.pass_time(90.0)
        assert stage.ids() == [A, B]


def test_a_renewed_item_lives_and_the_others_end() -> None:
    with RegistryStage() as stage:
        kept = stage.register(web(A), 10.0)
        stage.register(web(B), 10.0)
        for _ in range(5):
            stage.pass_time(8.0)
            assert stage.renew(cookie_of(kept), 10.0) == 10.0
        assert stage.ids() == [A]


def test_an_unknown_lease_has_its_cookie_and_its_reason() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 10.0)
        stage.pass_time(20.0)
        error = stage.renew(cookie_of(version))
        assert isinstance(error, UnknownLease)
        assert error.lease == cookie_of(version)


def test_another_term_moves_the_item_to_another_lease() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 10.0)
        assert stage.renew(cookie_of(version), 100.0) == 100.0
        assert stage.leases_left() == 1
        stage.pass_time(50.0)
        assert stage.ids() == [A]
        assert stage.renew(cookie_of(version), 5.0) == 5.0
        stage.pass_time(6.0)
        assert stage.ids() == []
        assert stage.leases_left() == 0


def test_any_keeps_the_term_and_forever_is_the_longest() -> None:
    with RegistryStage(maximum=500.0) as stage:
        version = stage.register(web(A), 10.0)
        assert stage.renew(cookie_of(version), ANY) == 10.0
        assert stage.renew(cookie_of(version), FOREVER) == 500.0
        assert stage.renew(cookie_of(version), ANY) == 500.0


def test_a_lease_that_is_longer_than_a_lowered_bound_keeps_its_end() -> None:
    with RegistryStage(maximum=500.0) as stage:
        version = stage.register(web(A), 400.0)
        stage.service.storage.policy = DurationPolicy(50.0, 50.0)
        stage.pass_time(100.0)
        assert stage.renew(cookie_of(version), ANY) == pytest.approx(300.0, abs=1.0)
        stage.pass_time(290.0)
        assert stage.ids() == [A]
        assert stage.renew(cookie_of(version), ANY) == 50.0
        assert stage.renew(cookie_of(version), 20.0) == 20.0


def test_a_term_of_zero_cancels_the_item() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A))
        assert stage.renew(cookie_of(version), 0.0) == 0.0
        assert stage.ids() == []
        assert stage.leases_left() == 0
        assert isinstance(stage.renew(cookie_of(version), 0.0), UnknownLease)


def test_a_replaced_registration_cannot_cancel_the_one_that_replaced_it() -> None:
    with RegistryStage() as stage:
        first = stage.register(web(A, "one"))
        stage.register(web(A, "two"))
        assert isinstance(stage.cancel(first), UnknownLease)
        assert stage.ids() == [A]


def test_an_item_under_a_lease_of_its_client_is_not_renewed_here() -> None:
    with RegistryStage() as stage:
        lease = stage.run(stage.engine.grant, 20.0).id
        version = stage.register(web(A), lease=lease)
        assert isinstance(stage.renew(cookie_of(version), 100.0), LeaseDenied)


def test_an_item_that_another_server_moved_is_renewed_where_it_is() -> None:
    with RegistryStage() as stage:
        other = stage.second_service()
        version = stage.register(web(A), 10.0)
        stage.lookup()
        stage.faulty.is_deaf = True  # the index of this server is late
        moved = stage.run(other.storage.renew_all, [(cookie_of(version), 100.0)])
        assert moved == [100.0]
        assert stage.renew(cookie_of(version), 10.0) == 10.0


def test_an_item_that_the_index_does_not_have_yet_is_renewed_by_its_key() -> None:
    with RegistryStage() as stage:
        other = stage.second_service()
        stage.lookup()
        stage.faulty.is_deaf = True
        version = stage.run(other.register, web(A), 10.0)
        assert stage.renew(cookie_of(version), 10.0) == 10.0
        assert stage.cancel(version) == 0.0


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.ANSWER_LOST])
def test_a_move_without_an_answer_does_not_end_the_item(fault: Fault) -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 20.0)
        stage.lookup()
        stage.faulty.trouble_with("txn", 1, fault)
        assert isinstance(stage.renew(cookie_of(version), 100.0), ConnectionLost)
        stage.pass_time(5.0)
        assert stage.ids() == [A]
        assert stage.renew(cookie_of(version), 100.0) == 100.0
        stage.pass_time(50.0)
        assert stage.ids() == [A]


def test_one_that_fails_does_not_fail_the_others() -> None:
    with RegistryStage() as stage:
        versions = [stage.register(web(each), 20.0) for each in (A, B)]
        stage.lookup()
        stage.faulty.trouble_with("txn", 1, LeaseDenied("no"))
        wants = [(cookie_of(version), 0.0) for version in versions]
        outcomes = stage.run(stage.leases.renew_all, wants)
        assert sorted(type(each).__name__ for each in outcomes) == ["LeaseDenied", "float"]


def test_an_engine_that_does_not_answer_fails_the_items_of_a_batch_only() -> None:
    with RegistryStage() as stage:
        registration = stage.listen("l", WEB, ttl=100.0)
        version = stage.register(web(A), 20.0)
        stage.lookup()
        stage.faulty.trouble_with("renew_all", 1, Fault.REQUEST_LOST)
        wants = [(cookie_of(version), 20.0), (registration, 50.0)]
        outcomes = stage.run(stage.leases.renew_all, wants)
        assert isinstance(outcomes[0], ConnectionLost)
        assert outcomes[1] == 50.0


def test_the_check_of_a_renewal_set_is_called_for_every_item() -> None:
    with RegistryStage() as stage:
        versions = [stage.register(web(each), 20.0) for each in (A, B)]
        stage.lookup()
        refused = cookie_of(versions[0])
        checked: list[object] = []

        def check(cookie: object) -> None:
            checked.append(cookie)
            if cookie == refused:
                raise ShardLost(0, "the set has another owner")

        wants = [(cookie_of(version), 20.0) for version in versions]
        outcomes = stage.run(stage.leases.renew_all, wants, check)
        assert isinstance(outcomes[0], ShardLost)
        assert outcomes[1] == 20.0
        assert len(checked) == 2


@pytest.mark.parametrize(
    "cookie", ["", ".", "x.y", f"{A}.", f".{A}", f"{A}/../.0123456789abcdef", b"bytes.x"]
)
def test_a_cookie_that_is_not_one_is_unknown(cookie: object) -> None:
    with RegistryStage() as stage:
        stage.register(item(A, "web"))
        assert isinstance(stage.renew(cookie, 10.0), UnknownLease)


def test_an_expired_item_is_not_renewed_before_it_is_reaped() -> None:
    with RegistryStage() as stage:
        version = stage.register(web(A), 10.0)
        stage.pass_time(10.5)
        error = stage.renew(cookie_of(version), 10.0)
        assert isinstance(error, LeaseholdError)
        assert isinstance(error, UnknownLease)
        assert error.reason in {EndReason.EXPIRED, EndReason.UNKNOWN}


def test_the_groups_of_the_registrar_have_a_number_that_rises() -> None:
    with RegistryStage() as stage:
        registrar = stage.service.registrar
        assert stage.run(registrar.get) == ((), 0)
        assert stage.revision == 1
        assert stage.run(registrar.set, ["lab", "", "lab"]) == (("", "lab"), 1)
        before = stage.revision
        assert stage.run(registrar.set, ["", "lab"]) == (("", "lab"), 1)
        assert stage.revision == before
        assert stage.run(registrar.update, lambda names: (*names, "x")) == (("", "lab", "x"), 2)
        assert stage.run(registrar.set, []) == ((), 3)
        stage.crash()
        assert stage.run(stage.service.registrar.get) == ((), 3)


def test_groups_that_are_set_by_two_servers_together_have_two_numbers() -> None:
    with RegistryStage() as stage:
        stage.faulty.delay_s = 1.0
        other = stage.second_service()
        task = stage.host.start(lambda: stage.service.registrar.update(lambda g: (*g, "a")))
        stage.pass_time(1.2)
        stage.run(other.registrar.update, lambda groups: (*groups, "b"))
        stage.pass_time(10.0)
        assert task.result() == (("a", "b"), 2)


@pytest.mark.parametrize("names", [["x" * 257], [f"{number}" for number in range(1001)]])
def test_groups_beyond_the_limits_are_refused(names: list[str]) -> None:
    with RegistryStage() as stage, pytest.raises(ValueError, match="at most"):
        stage.run(stage.service.registrar.set, names)
