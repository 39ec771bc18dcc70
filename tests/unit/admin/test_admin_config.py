"""The rules for the configuration of services: groups, locators, attributes, bounds of leases."""

from typing import Any

import pytest

from leasehold.admin.config import (
    MAX_LOCATORS,
    ServiceConfig,
    attributes_change,
    bound_ms,
    check_bound,
    check_service,
    config_change,
    config_of,
)
from leasehold.basics.durations import ANY, FOREVER
from leasehold.discovery.locators import Locator
from leasehold.errors import UnsupportedOperation
from leasehold.registry.messages import set_message
from leasehold.registry.own_services import SERVICES
from leasehold.registry.state import MAX_GROUPS, AttributeSet, attribute_set
from leasehold.wire import admin_pb2 as pb
from leasehold.wire import discovery_pb2
from leasehold.wire.registry_pb2 import AttributeSets
from tests.support.fake_network import virtually
from tests.support.held_watches import held_engine

A, B = Locator("a.example"), Locator("b.example", 1)
FLOOR_3, FLOOR_4 = (attribute_set("Location", {"floor": floor}) for floor in (3, 4))


def changed(config: ServiceConfig, operation: str = "SET", **part: Any) -> ServiceConfig:
    return config_change(pb.ChangeServiceRequest(operation=operation, **part))(config)


def groups(config: ServiceConfig, operation: str, *names: str) -> ServiceConfig:
    return changed(config, operation, groups=discovery_pb2.GroupNames(names=names))


def locators(config: ServiceConfig, operation: str, *texts: str) -> ServiceConfig:
    return changed(config, operation, locators=pb.JoinedLocators(locators=texts))


def attributes(
    current: tuple[AttributeSet, ...], operation: str, *given: AttributeSet
) -> tuple[AttributeSet, ...]:
    sets = AttributeSets(sets=map(set_message, given))
    request = pb.ChangeServiceRequest(operation=operation, attributes=sets)
    return attributes_change(request)(current)


NOTHING = ServiceConfig()
ALL = changed(NOTHING, groups=discovery_pb2.GroupNames(all=True))


def test_by_default_a_service_joins_nothing() -> None:
    assert not NOTHING.is_joining
    assert ALL.is_joining
    assert groups(NOTHING, "SET", "").is_joining
    assert locators(NOTHING, "ADD", "leasehold://a").is_joining


def test_groups_are_added_set_and_removed_and_duplicates_count_once() -> None:
    config = groups(NOTHING, "ADD", "a", "b", "a", "")
    assert config.groups == frozenset({"", "a", "b"})
    assert groups(config, "REMOVE", "a", "unknown").groups == frozenset({"", "b"})
    assert groups(config, "SET", "c").groups == frozenset({"c"})
    assert groups(config, "ADD") == groups(config, "REMOVE") == config


def test_all_groups_and_no_groups_are_different() -> None:
    assert ALL.groups is None
    assert groups(ALL, "SET").groups == frozenset()
    assert groups(ALL, "SET", "a").groups == frozenset({"a"})


@pytest.mark.parametrize("operation", ["ADD", "REMOVE"])
def test_adding_to_all_groups_and_removing_from_them_are_unsupported(operation: str) -> None:
    with pytest.raises(
        UnsupportedOperation, match="all groups: set the names of the wanted groups"
    ):
        groups(ALL, operation, "a")
    with pytest.raises(ValueError, match="all groups can only be set"):
        changed(NOTHING, operation, groups=discovery_pb2.GroupNames(all=True))
    with pytest.raises(ValueError, match="groups must have `all` or `names`, not both"):
        changed(NOTHING, groups=discovery_pb2.GroupNames(all=True, names=["a"]))


def test_locators_are_equal_by_host_and_port() -> None:
    config = locators(NOTHING, "ADD", "leasehold://A.example", "leasehold://a.example:2379")
    assert config.locators == (A,)
    config = locators(config, "ADD", "leasehold://b.example:1")
    assert config.locators == (A, B)
    assert locators(config, "REMOVE", "leaseholds://A.EXAMPLE", "leasehold://c").locators == (B,)
    assert locators(config, "SET").locators == ()
    (with_tls,) = locators(NOTHING, "SET", "leasehold://a", "leaseholds://a").locators
    assert with_tls.is_tls


@pytest.mark.parametrize("text", ["a.example", "http://a", "leasehold://a:0", "leasehold://", ""])
def test_what_is_not_a_locator_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a locator: write leasehold://HOST"):
        locators(NOTHING, "ADD", text)


def test_groups_and_locators_are_limited_in_number_and_length() -> None:
    names = [str(number) for number in range(MAX_GROUPS)]
    full = groups(NOTHING, "SET", *names)
    assert groups(full, "ADD", "0") == full
    with pytest.raises(ValueError, match="at most 1,000 groups, got 1,001"):
        groups(full, "ADD", "more")
    with pytest.raises(ValueError, match="at most 256 characters, got 257"):
        groups(NOTHING, "SET", "x" * 257)
    texts = [f"leasehold://h{number}" for number in range(MAX_LOCATORS)]
    full = locators(NOTHING, "SET", *texts)
    with pytest.raises(ValueError, match="at most 1,000 locators, got 1,001"):
        locators(full, "ADD", "leasehold://more")


def test_attribute_sets_are_added_once_replaced_and_removed_by_templates() -> None:
    both = attributes((FLOOR_3,), "ADD", FLOOR_4, FLOOR_3, FLOOR_4)
    assert both == (FLOOR_3, FLOOR_4)
    assert attributes(both, "SET", FLOOR_4, FLOOR_4) == (FLOOR_4,)
    assert attributes(both, "REMOVE", FLOOR_3, AttributeSet("unknown")) == (FLOOR_4,)
    assert attributes(both, "REMOVE", AttributeSet("Location")) == ()
    assert attributes(both, "REMOVE") == both


def test_the_bound_of_leases_is_a_duration_or_forever_or_that_of_the_settings() -> None:
    assert changed(NOTHING, lease_bound_ms=90_500).lease_bound == 90.5
    assert changed(NOTHING, lease_bound_ms=-2).lease_bound is FOREVER
    bounded = ServiceConfig(lease_bound=5.0)
    assert changed(bounded, lease_bound_ms=0).lease_bound is None
    assert [bound_ms(each) for each in (None, FOREVER, 1.5)] == [0, -2, 1500]


@pytest.mark.parametrize("wrong_ms", [-1, -3, 1, 999, 9_000_000_000_001])
def test_a_bound_that_is_too_low_or_too_high_is_refused(wrong_ms: int) -> None:
    with pytest.raises(ValueError, match=r"bound of leases must (be from 1|not be negative)"):
        changed(NOTHING, lease_bound_ms=wrong_ms)


def test_a_bound_of_any_length_is_refused() -> None:
    with pytest.raises(ValueError, match="ANY is not allowed"):
        check_bound(ANY)


def test_a_request_must_have_a_part_and_a_known_operation() -> None:
    with pytest.raises(ValueError, match="part must be given"):
        config_change(pb.ChangeServiceRequest())
    with pytest.raises(ValueError, match="operation must be ADD, SET or REMOVE, got 7"):
        config_change(pb.ChangeServiceRequest(operation=7, lease_bound_ms=1))  # type: ignore[arg-type]


def test_an_unknown_service_is_refused_with_the_names_of_the_known_ones() -> None:
    with pytest.raises(ValueError, match=rf"'x': the services are {', '.join(SERVICES)}"):
        check_service("x")


@virtually
async def test_everything_that_is_set_is_stored() -> None:
    config = ServiceConfig(None, (A, Locator("c", is_tls=True)), FOREVER)
    other = ServiceConfig(frozenset(("", "a")), (), 90.5)
    async with held_engine() as engine:
        for each in (config, other):
            await config_of(engine, "renewal").update(lambda _, each=each: each)  # type: ignore[misc]
            stored = (await config_of(engine, "renewal").read()).value
            assert stored == each
            assert [locator.is_tls for locator in stored.locators] == [
                locator.is_tls for locator in each.locators
            ]
        (pair,) = (await engine.range(b"leasehold/", b"leasehold0")).pairs
        assert pair.key == b"leasehold/admin/renewal"
