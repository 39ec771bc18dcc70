"""etcdctl says the same of both servers."""

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Final

import pytest

from tests.conformance.client import TRIES_MAX, Client
from tests.conformance.etcdctl import RUN_S, Etcdctl, Names, Running

NOT_FOUND: Final = "etcdserver: requested lease not found"
UNKNOWN: Final = "1f"
SLOW_S: Final = 1.5
"""Longer than etcdctl waits between two renewals of a lease of two seconds."""


def test_put_and_get(etcdctl: Etcdctl, names: Names) -> None:
    assert etcdctl.says("put", names.a, "1") == "OK\n"
    assert etcdctl.says("put", "--prev-kv", names.a, "2") == f"OK\n{names.a}\n1\n"
    assert etcdctl.says("get", names.a) == f"{names.a}\n2\n"
    assert etcdctl.says("get", names.nothing) == ""
    assert etcdctl.says("get", "--print-value-only", names.a) == "2\n"


def test_get_as_json_and_as_fields(etcdctl: Etcdctl, client: Client, names: Names) -> None:
    start = client.revision()
    etcdctl.says("put", names.a, "1")
    etcdctl.says("put", names.a, "2")
    answer = json.loads(etcdctl.says("get", names.a, "-w", "json"))
    assert answer["header"].pop("cluster_id") > 0
    assert answer["header"].pop("member_id") > 0
    assert answer["header"].pop("raft_term") > 0
    pair = {
        "key": b64encode(names.a.encode()).decode(),
        "create_revision": start + 1,
        "mod_revision": start + 2,
        "version": 2,
        "value": b64encode(b"2").decode(),
    }
    assert answer == {"header": {"revision": start + 2}, "kvs": [pair], "count": 1}
    fields = etcdctl.says("get", names.a, "-w", "fields").splitlines()
    assert [
        re.sub(r'^("(?:ClusterID|MemberID|RaftTerm)" :) [1-9]\d*$', r"\1 N", f) for f in fields
    ] == [
        '"ClusterID" : N',
        '"MemberID" : N',
        f'"Revision" : {start + 2}',
        '"RaftTerm" : N',
        f'"Key" : "{names.a}"',
        f'"CreateRevision" : {start + 1}',
        f'"ModRevision" : {start + 2}',
        '"Version" : 2',
        '"Value" : "2"',
        '"Lease" : 0',
        '"More" : false',
        '"Count" : 1',
    ]


def test_get_of_a_prefix(etcdctl: Etcdctl, names: Names) -> None:
    for name in (names.b, names.a, names.c):
        etcdctl.says("put", name, name[-1])
    pairs = {name: f"{name}\n{name[-1]}\n" for name in (names.a, names.b, names.c)}
    whole = ["get", "--prefix", names.prefix]
    assert etcdctl.says(*whole) == "".join(pairs.values())
    assert etcdctl.says(*whole, "--limit", "2") == pairs[names.a] + pairs[names.b]
    assert etcdctl.says(*whole, "--keys-only") == f"{names.a}\n\n{names.b}\n\n{names.c}\n\n"
    down = etcdctl.says(*whole, "--order", "DESCEND", "--sort-by", "KEY")
    assert down == "".join(reversed(pairs.values()))
    assert etcdctl.says("get", names.b, names.c) == pairs[names.b]
    assert '"Count" : 3\n' in etcdctl.says(*whole, "--count-only", "-w", "fields")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["put", "", "x"], "etcdserver: key is not provided"),
        (["put", "--ignore-value", "no such key"], "etcdserver: key not found"),
        (["put", "--lease", UNKNOWN, "k", "v"], NOT_FOUND),
        (
            ["get", "--rev", "999999", "k"],
            "etcdserver: mvcc: required revision is a future revision",
        ),
        (["lease", "revoke", UNKNOWN], f"failed to revoke lease ({NOT_FOUND})"),
        (
            ["lease", "grant", "9000000001"],
            "failed to grant lease (etcdserver: too large lease TTL)",
        ),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else "",
)
def test_what_is_refused(etcdctl: Etcdctl, arguments: list[str], error: str) -> None:
    assert etcdctl.fails(*arguments) == (1, "", f"Error: {error}")


def test_a_lease_from_grant_to_revoke(etcdctl: Etcdctl, names: Names) -> None:
    granted = etcdctl.says("lease", "grant", "600")
    found = re.fullmatch(r"lease ([0-9a-f]{16}) granted with TTL\(600s\)\n", granted)
    assert found, granted
    lease = found[1]
    for name in (names.b, names.a):
        etcdctl.says("put", "--lease", lease, name, "v")
    left = etcdctl.says("lease", "timetolive", lease)
    assert re.fullmatch(
        rf"lease {lease} granted with TTL\(600s\), remaining\(5[89]\ds\)\n", left
    ), left
    left = etcdctl.says("lease", "timetolive", "--keys", lease)
    keys = re.fullmatch(r"(.*\(5[89]\ds\)), attached keys\(\[(.*)\]\)\n", left)
    assert keys, left
    assert sorted(keys[2].split()) == [names.a, names.b]
    renewed = etcdctl.says("lease", "keep-alive", "--once", lease)
    assert renewed == f"lease {lease} keepalived with TTL(600)\n"
    assert etcdctl.says("lease", "revoke", lease) == f"lease {lease} revoked\n"
    assert etcdctl.says("get", "--prefix", names.prefix) == ""
    assert etcdctl.says("lease", "timetolive", lease) == f"lease {lease} already expired\n"


def test_a_short_lease_is_granted_for_the_minimum(etcdctl: Etcdctl) -> None:
    words = etcdctl.says("lease", "grant", "0").split()
    etcdctl.says("lease", "revoke", words[1])
    assert words[2:] == ["granted", "with", "TTL(2s)"]


def test_an_unknown_lease(etcdctl: Etcdctl) -> None:
    shown = f"lease {UNKNOWN:0>16}"
    assert etcdctl.says("lease", "timetolive", UNKNOWN) == f"{shown} already expired\n"
    assert etcdctl.says("lease", "keep-alive", UNKNOWN) == f"{shown} expired or revoked.\n"
    once = etcdctl.fails("lease", "keep-alive", "--once", UNKNOWN)
    assert once == (2, "", f"Error: {NOT_FOUND}")


def test_keep_alive_goes_on_until_the_lease_is_revoked(etcdctl: Etcdctl) -> None:
    for tries_left in reversed(range(TRIES_MAX)):
        told_at = time.monotonic()
        lease = etcdctl.grant(2)
        with etcdctl.going_on("lease", "keep-alive", lease) as renewing:
            try:
                for _ in range(5):
                    assert renewing.lines(1) == [f"lease {lease} keepalived with TTL(2)"]
                    told_at = time.monotonic()
                etcdctl.says("lease", "revoke", lease)
            except AssertionError:
                if not tries_left or time.monotonic() - told_at < SLOW_S:
                    raise
                continue  # this machine was too slow to keep it
            while (line := renewing.lines(1)[0]).endswith("keepalived with TTL(2)"):
                pass
            assert line == f"lease {lease} expired or revoked."
            assert renewing.process.wait(RUN_S) == 0
            return


def test_watch(etcdctl: Etcdctl, client: Client, names: Names) -> None:
    name = names.a
    lease = etcdctl.grant(600)
    with etcdctl.going_on("watch", "--prev-kv", name) as watching:
        last = begin_watch(watching, lambda value: client.put(name.encode(), value.encode()))
        etcdctl.says("put", "--lease", lease, name, "leased")
        assert watching.lines(5) == ["PUT", name, last, name, "leased"]
        etcdctl.says("lease", "revoke", lease)
        assert watching.lines(5) == ["DELETE", name, "leased", name, ""]


def begin_watch(watching: Running, put: Callable[[str], object]) -> str:
    """Put until the watch has seen the last of the values: etcdctl does not say when it began."""
    give_up_at, number = time.monotonic() + RUN_S, 0
    while not watching.has_said(0.5):
        assert time.monotonic() < give_up_at, "the watch tells nothing"
        number += 1
        put(str(number))
    put("last")
    while watching.lines(1) != ["last"]:
        pass
    return "last"
