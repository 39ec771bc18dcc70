"""Locators and groups: what is a valid one, and which are equal."""

from typing import Any

import pytest

from leasehold.discovery.locators import Locator, groups_of, locators_of, names_of
from leasehold.discovery.state import ALL_GROUPS, NO_GROUPS


@pytest.mark.parametrize(
    ("text", "host", "port", "is_tls"),
    [
        ("leasehold://db.example.org", "db.example.org", 2379, False),
        ("leasehold://db.example.org:1", "db.example.org", 1, False),
        ("leaseholds://10.0.0.1:65535", "10.0.0.1", 65535, True),
        ("leasehold://[::1]", "::1", 2379, False),
        ("LEASEHOLD://[FE80::1]:7", "fe80::1", 7, False),
    ],
)
def test_a_locator_has_a_host_and_the_port_of_the_server_by_default(
    text: str, host: str, port: int, is_tls: bool
) -> None:
    locator = Locator.parse(text)
    assert (locator.host, locator.port, locator.is_tls) == (host, port, is_tls)
    assert Locator.parse(str(locator)) == locator


def test_locators_are_equal_by_host_in_any_case_and_port() -> None:
    first = Locator.parse("leasehold://DB.Example.org:2379")
    assert first == Locator.parse("leasehold://db.example.ORG")
    assert hash(first) == hash(Locator.parse("leaseholds://db.example.org"))
    assert first != Locator.parse("leasehold://db.example.org:2380")
    assert first != Locator.parse("leasehold://other.example.org")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "db.example.org",
        "db.example.org:2379",
        "http://db.example.org",
        "jini://db.example.org",
        "leasehold:db.example.org",
        "leasehold:/db.example.org",
        "leasehold://",
        "leasehold://:2379",
        "leasehold://db.example.org:",
        "leasehold://db.example.org:0",
        "leasehold://db.example.org:65536",
        "leasehold://db.example.org:-1",
        "leasehold://db.example.org:port",
        "leasehold://db.example.org/",
        "leasehold://db.example.org/path",
        "leasehold://db.example.org?x=1",
        "leasehold://user@db.example.org",
        "leasehold://db example.org",
        " leasehold://db.example.org",
        "leasehold://::1",
        "leasehold://[::1",
        "leasehold://unix:/run/x.sock",
    ],
)
def test_anything_malformed_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a locator: write leasehold://HOST"):
        Locator.parse(text)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_is_from_1_to_65535(port: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 65535"):
        Locator("here", port)


@pytest.mark.parametrize("arguments", [(None,), ("here", "1"), ("here", True), (b"here",)])
def test_parts_of_a_locator_have_their_types(arguments: Any) -> None:
    with pytest.raises(TypeError):
        Locator(*arguments)


def test_a_host_is_checked() -> None:
    with pytest.raises(ValueError, match="not a host name"):
        Locator("not a host")


def test_no_name_is_resolved_before_discovery() -> None:
    """A processor time limit would prove nothing; a name that cannot be resolved is accepted."""
    assert Locator.parse("leasehold://nowhere.invalid").host == "nowhere.invalid"


def test_an_endpoint_uses_tls_if_the_locator_does() -> None:
    assert Locator.parse("leasehold://here").endpoint == "here:2379"
    assert Locator.parse("leaseholds://[::1]:1").endpoint == "https://[::1]:1"


def test_all_groups_and_no_groups_are_different_things() -> None:
    assert groups_of(None) is ALL_GROUPS
    assert groups_of([]) == NO_GROUPS
    assert groups_of([]) is not ALL_GROUPS


def test_duplicates_count_once() -> None:
    assert names_of(["a", "", "a"]) == {"a", ""}
    found = locators_of(["leasehold://here", Locator("HERE"), "leasehold://there"])
    assert found == (Locator("here"), Locator("there"))


@pytest.mark.parametrize("wrong", [None, "a", b"a", 7, [None], ["leasehold://a", None], [b"a"]])
def test_none_and_other_types_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        names_of(wrong)
    if wrong != "a":
        with pytest.raises(TypeError):
            locators_of(wrong)


def test_the_name_of_a_group_has_a_maximum_length() -> None:
    with pytest.raises(ValueError, match="at most 256 characters"):
        names_of(["x" * 257])


def test_of_equal_locators_one_with_tls_is_taken() -> None:
    for texts in (["leasehold://A", "leaseholds://a"], ["leaseholds://a", "leasehold://A"]):
        assert list(map(str, locators_of(texts))) == ["leaseholds://a:2379"]


def test_the_name_of_a_group_must_be_utf8() -> None:
    with pytest.raises(ValueError, match=r"^name of a group must be valid UTF-8, got '") as caught:
        names_of(["a", "\udcff"])
    assert not isinstance(caught.value, UnicodeError)
