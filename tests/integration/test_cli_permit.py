"""`leasehold permit`, against a server of ours and an etcd: what is printed, and the exit codes."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.client_command import Command

USAGE_ERROR, NOT_THERE, DENIED = 2, 3, 7
MINUTE = timedelta(minutes=1)
_numbers = itertools.count()


@pytest.fixture
def anna() -> str:
    """Have a name that nobody else has."""
    return f"anna {next(_numbers)}"


def test_a_permit_is_granted_checked_listed_and_revoked(leasehold: Command, anna: str) -> None:
    said = leasehold.ok("permit", "grant", anna, "hall", "out", "in", "--ttl", "1m", "--by", "ops")
    first, second = said.lines
    assert first == f"{anna} has on hall: in, out"
    assert second.startswith("until lease ")
    assert second.endswith(" ends, in 1m unless it is renewed")
    lease = second.split()[2]
    assert leasehold.ok("permit", "check", anna, "hall", "in").text == (
        f"{anna} has the right in on hall\n"
    )
    heads, row = leasehold.ok("permit", "list", "--subject", anna).lines
    assert heads.split("  ")[0] == "SUBJECT"
    assert heads.split()[-5:] == ["ENDS", "AT", "REMAINING", "GRANTED", "BY"]
    ends_at, remaining, by = row.split()[-3:]
    assert row.startswith(f"{anna}   hall      in, out  {lease}  ")
    assert ends_at.endswith("Z")
    assert datetime.now(UTC) < datetime.fromisoformat(ends_at) < datetime.now(UTC) + MINUTE
    assert remaining.endswith("s")
    assert by == "ops"
    said = leasehold.ok("permit", "revoke", anna, "hall")
    assert said.text == f"the permit of {anna} for hall is revoked\n"
    complaint = leasehold.fails(DENIED, "permit", "check", anna, "hall", "in")
    assert complaint == f"leasehold: {anna} does not have the right in on hall"
    complaint = leasehold.fails(NOT_THERE, "permit", "revoke", anna, "hall")
    assert complaint == f"leasehold: {anna} has no permit for hall"
    leasehold.fails(NOT_THERE, "lease", "show", lease)


def test_the_term_is_told_that_was_granted(on_ours: Command, on_etcd: Command, anna: str) -> None:
    grant = ("permit", "grant", anna, "hall", "in", "--ttl")
    ends = " ends, in {} unless it is renewed"
    assert on_ours.ok(*grant, "61.5").lines[1].endswith(ends.format("1m1s500ms"))
    assert on_etcd.ok(*grant, "1").lines[1].endswith(ends.format("2s"))  # the least of an etcd
    assert on_etcd.ok(*grant, "7.5").lines[1].endswith(ends.format("8s"))


def test_a_permit_ends_with_the_lease_that_was_named(leasehold: Command, anna: str) -> None:
    lease = leasehold.ok("lease", "grant", "60", "--print-id-only").text.strip()
    said = leasehold.ok("permit", "grant", anna, "hall", "in", "--lease", lease, "--print-id-only")
    assert said.text == f"{lease}\n"
    leasehold.ok("permit", "check", anna, "hall", "in")
    _, row = leasehold.ok("permit", "list", "--subject", anna).lines
    assert row.split()[-3:-1] == ["-", "-"], "its lease alone ends it"
    (listed,) = leasehold.ok("permit", "list", "--subject", anna, "--json").json["permits"]
    assert (listed["ends_at"], listed["remaining_s"]) == (None, None)
    leasehold.ok("lease", "revoke", lease)
    leasehold.fails(DENIED, "permit", "check", anna, "hall", "in")
    leasehold.fails(NOT_THERE, "permit", "grant", anna, "hall", "in", "--lease", lease)


def test_json(leasehold: Command, anna: str) -> None:
    options = ("--ttl", "60", "--by", "ops", "--json")
    granted = leasehold.ok("permit", "grant", anna, "h/a\tll", "in", *options).json
    assert set(granted) == {
        *("subject", "resource", "rights", "lease", "own_lease", "granted_by", "revision"),
        "ends_at",
    }
    left_s = (datetime.fromisoformat(granted["ends_at"]) - datetime.now(UTC)).total_seconds()
    assert 0.0 < left_s <= 60.0
    assert granted["rights"] == ["in"]
    (listed,) = leasehold.ok("permit", "list", "--resource", "h/a\tll", "--json").json["permits"]
    assert 0.0 < listed.pop("remaining_s") <= left_s + 0.001
    assert listed == granted
    assert leasehold.ok("permit", "check", anna, "h/a\tll", "in", "--json").json == {
        "allowed": True
    }
    said = leasehold("permit", "check", anna, "h/a\tll", "out", "--json")
    assert (said.code, said.json) == (DENIED, {"allowed": False})
    assert leasehold.ok("permit", "revoke", anna, "h/a\tll", "--json").json == {"revoked": True}
    said = leasehold("permit", "revoke", anna, "h/a\tll", "--json")
    assert (said.code, said.json) == (NOT_THERE, {"revoked": False})


def test_what_would_harm_a_terminal_is_shown_in_another_way(leasehold: Command, anna: str) -> None:
    name = f"{anna}\x1b[31m"
    said = leasehold.ok("permit", "grant", name, "hall", "\x1bin", "--ttl", "60")
    assert "\x1b" not in said.text
    assert "\x1b" not in leasehold.ok("permit", "list", "--subject", name).text
    leasehold.ok("permit", "revoke", name, "hall")
