"""`leasehold admin`, against a server of ours and an etcd: output, exit codes, refusals."""

import pytest

from leasehold.registry.own_services import SERVICES
from tests.support.client_command import Command

FAILURE, USAGE_ERROR = 1, 2
NOWHERE = "leasehold://127.0.0.1:1"
"""Where no registrar answers."""


def test_what_is_set_for_all_services_is_shown(on_ours: Command) -> None:
    shown = on_ours.ok("admin", "show", "--json").json["services"]
    assert {each["service"]: each["type"] for each in shown} == SERVICES
    blocks = on_ours.ok("admin", "show").text.split("\n\n")
    assert [block.splitlines()[0].split() for block in blocks] == [
        ["service", name] for name in SERVICES
    ]


def test_a_service_without_changes_joins_nothing_and_has_the_bound_of_the_settings(
    on_ours: Command,
) -> None:
    lines = on_ours.ok("admin", "show", "registrar").lines
    assert [line.split(maxsplit=2)[-1] for line in lines[3:6]] == [
        "join    none",
        "join  none",
        "none",
    ]
    assert lines[6].split(maxsplit=2)[-1] == "1h (of the settings)"


def test_locators_are_added_set_and_removed(on_ours: Command) -> None:
    def locators(*arguments: str) -> object:
        said = on_ours.ok("admin", "join-locators", "renewal", *arguments, "--json")
        return said.json["locators"]

    assert locators("--add", NOWHERE, "--add", NOWHERE) == [NOWHERE]
    assert locators("--set", "leasehold://localhost:1", "--set", NOWHERE) == [
        "leasehold://localhost:1",
        NOWHERE,
    ]
    assert locators("--remove", "leasehold://LOCALHOST:1") == [NOWHERE]
    said = on_ours.ok("admin", "join-locators", "renewal", "--none")
    assert "locators to join  none" in said.lines


def test_groups_are_set_to_none_and_removed(on_ours: Command) -> None:
    for arguments in (["--none"], ["--remove", "a", "--remove", ""]):
        said = on_ours.ok("admin", "join-groups", "registrar", *arguments, "--json")
        assert said.json["groups"] == []


def test_attributes_are_added_set_and_removed(on_ours: Command) -> None:
    def attributes(*arguments: str) -> list[tuple[str, object]]:
        said = on_ours.ok("admin", "attributes", "renewal", *arguments, "--json")
        return [(each["kind"], each["fields"]) for each in said.json["attributes"]]

    room = 'Location:{"floor": 4, "room": "east"}'
    assert attributes("--add", "Location:floor=3", "--add", "Owner") == [
        ("Location", {"floor": 3}),
        ("Owner", {}),
    ]
    assert attributes("--add", room, "--add", room)[2:] == [
        ("Location", {"floor": 4, "room": "east"})
    ]
    found = on_ours.ok("registry", "lookup", "--attribute", "Location:room=east", "--json").json
    assert [each["types"] for each in found["items"]] == [[SERVICES["renewal"]]]
    assert attributes("--remove", "Location:floor=3") == [
        ("Owner", {}),
        ("Location", {"floor": 4, "room": "east"}),
    ]
    assert attributes("--set", "Owner:name=anna") == [("Owner", {"name": "anna"})]
    assert attributes("--none") == []


def test_control_characters_in_attributes_are_escaped(on_ours: Command) -> None:
    said = on_ours.ok("admin", "attributes", "registrar", "--set", "Owner\x1b[31m:name=a\x07")
    assert "\x1b" not in said.text
    assert "\x07" not in said.text
    on_ours.ok("admin", "attributes", "registrar", "--none")


def test_the_bound_of_leases_is_set_and_reset(on_ours: Command) -> None:
    said = on_ours.ok("admin", "lease-bound", "renewal", "90m")
    assert said.lines[-1].split(maxsplit=2)[-1] == "1h30m"
    assert on_ours.ok("renewal", "create", "--ttl", "8h").text.endswith(" created for 1h30m\n")
    said = on_ours.ok("admin", "lease-bound", "renewal", "forever", "--json")
    assert (said.json["lease_bound_s"], said.json["is_default_bound"]) == (None, False)
    said = on_ours.ok("admin", "lease-bound", "renewal", "default", "--json")
    assert (said.json["lease_bound_s"], said.json["is_default_bound"]) == (7200, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            "join-groups renewal",
            "one of the arguments --add --remove --set --none --all is required",
        ),
        ("join-groups renewal --all --add a", "--add: not allowed with argument --all"),
        ("join-groups renewal --none --set a", "--set: not allowed with argument --none"),
        ("join-groups", "the following arguments are required: SERVICE"),
        ("join-locators renewal --add 10.0.0.1", "'10.0.0.1' is not a locator: write leasehold://"),
        ("attributes renewal --add :a=1", "':a=1' is not an attribute: write KIND or KIND:FIELD"),
        ("attributes renewal --add a:{b", "write KIND:{...} with a JSON object"),
        ("lease-bound renewal", "the following arguments are required: TIME"),
        (
            "lease-bound renewal 10ms",
            "bound of leases must be from 1 to 9,000,000,000 s, or forever",
        ),
        ("lease-bound renewal soon", "'soon' is not a duration"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(
    on_ours: Command, arguments: str, complaint: str
) -> None:
    said = on_ours.fails(USAGE_ERROR, "admin", *arguments.split())
    assert complaint in said


@pytest.mark.parametrize(
    "arguments",
    ["show", "join-groups --none", "join-locators --none", "attributes --none", "lease-bound 1h"],
)
def test_an_unknown_service_is_refused_with_the_names_of_the_known_ones(
    on_ours: Command, arguments: str
) -> None:
    command, *rest = arguments.split()
    said = on_ours.fails(FAILURE, "admin", command, "renewals", *rest)
    assert said == f"leasehold: unknown service 'renewals': the services are {', '.join(SERVICES)}"


@pytest.mark.parametrize("arguments", ["show", "groups", "attributes renewal --none"])
def test_an_etcd_has_no_administration(on_etcd: Command, arguments: str) -> None:
    said = on_etcd.fails(FAILURE, "admin", *arguments.split())
    assert "leasehold admin requires a Leasehold server, but this is etcd" in said
