"""`leasehold kv`, against a server of ours and an etcd: what is printed, and the exit codes."""

import base64
import itertools
import json
from typing import Any

import pytest

from tests.support.client_command import Command

NOT_THERE, USAGE_ERROR, NOT_MET, FAILURE = 3, 2, 5, 1
_names = (f"key-{number}" for number in itertools.count())


@pytest.fixture
def key() -> str:
    """Have a key that nobody else has."""
    return next(_names)


def test_a_key_is_set_read_and_deleted(leasehold: Command, key: str) -> None:
    said = leasehold.ok("kv", "put", key, "hello")
    revision = int(said.text.split()[-1])
    assert said.text == f"{key} is set, at revision {revision}\n"
    heads, row = leasehold.ok("kv", "get", key).lines
    assert heads.split() == ["KEY", "REVISION", "VERSION", "LEASE", "VALUE"]
    assert row.split() == [key, str(revision), "1", "-", "hello"]
    assert leasehold.ok("kv", "del", key).text == f"1 key deleted, at revision {revision + 1}\n"
    assert leasehold.ok("kv", "get", key, "--rev", str(revision), "--print-value-only").text == (
        "hello\n"
    )


def test_json_has_all_that_is_known(leasehold: Command, key: str) -> None:
    put = leasehold.ok("kv", "put", key, "1", "--json").json
    assert put == {"revision": put["revision"], "key": key, "previous": None}
    again = leasehold.ok("kv", "put", key, "2", "--json").json
    assert again["previous"]["value"] == "1"
    pair = {
        "key": key,
        "value": "2",
        "create_revision": put["revision"],
        "mod_revision": again["revision"],
        "version": 2,
        "lease": None,
    }
    found = leasehold.ok("kv", "get", key, "--json").json
    assert found == {"revision": again["revision"], "total": 1, "more": False, "pairs": [pair]}
    gone = leasehold.ok("kv", "del", key, "--previous", "--json").json
    assert gone == {"revision": again["revision"] + 1, "deleted": 1, "previous": [pair]}


def test_what_is_no_text_is_in_base64_under_another_name(leasehold: Command, key: str) -> None:
    data = b"\xff\x00\n"
    leasehold.ok("kv", "put", key, "-", stdin=data)
    (pair,) = leasehold.ok("kv", "get", key, "--json").json["pairs"]
    assert base64.b64decode(pair["value_base64"]) == data
    assert "value" not in pair
    assert leasehold.ok("kv", "get", key, "--print-value-only").out == data + b"\n"
    assert leasehold.ok("kv", "get", key).lines[1].endswith(r"\xff\x00\n")


def test_a_key_that_is_no_text_can_be_typed(leasehold: Command, key: str) -> None:
    name = key + "\udcff"  # how Python has a byte of a command line that is not UTF-8
    leasehold.ok("kv", "put", name, "x")
    (pair,) = leasehold.ok("kv", "get", name, "--json").json["pairs"]
    assert base64.b64decode(pair["key_base64"]) == key.encode() + b"\xff"


def test_a_long_value_is_cut_in_a_table_only(leasehold: Command, key: str) -> None:
    leasehold.ok("kv", "put", key, "x" * 5000)
    assert leasehold.ok("kv", "get", key).text.endswith("xxx... (4.9 KiB)\n")
    assert leasehold.ok("kv", "get", key, "--print-value-only").text == "x" * 5000 + "\n"


def test_all_keys_that_begin_so(leasehold: Command, key: str) -> None:
    for end in "ab":
        leasehold.ok("kv", "put", f"{key}/{end}", end)
    said = leasehold.ok("kv", "get", f"{key}/", "--prefix", "--keys-only")
    assert said.lines == [f"{key}/a", f"{key}/b"]
    limited = leasehold.ok("kv", "get", f"{key}/", "--prefix", "--limit", "1", "--json").json
    assert (limited["total"], limited["more"], len(limited["pairs"])) == (2, True, 1)
    everything = leasehold.ok("kv", "get", "", "--prefix", "--keys-only").out.split()
    assert {f"{key}/a".encode(), f"{key}/b".encode()} <= set(everything)
    assert leasehold.ok("kv", "del", f"{key}/", "--prefix", "--json").json["deleted"] == 2


@pytest.mark.parametrize("command", ["get", "del"])
def test_what_is_not_there_has_an_exit_code_of_its_own(
    leasehold: Command, key: str, command: str
) -> None:
    said = leasehold.fails(NOT_THERE, "kv", command, key)
    assert said == f"leasehold: key {key} does not exist"
    said = leasehold.fails(NOT_THERE, "kv", command, key, "--prefix")
    assert said == f"leasehold: no key begins with {key}"
    answer = leasehold("kv", command, key, "--json")
    assert answer.code == NOT_THERE
    assert "revision" in answer.json


def test_a_key_ends_with_a_lease(leasehold: Command, key: str) -> None:
    lease = leasehold.ok("lease", "grant", "60", "--print-id-only").text.strip()
    leasehold.ok("kv", "put", key, "1", "--lease", lease)
    leasehold.ok("kv", "put", key, "2", "--keep-lease")
    assert leasehold.ok("kv", "get", key, "--json").json["pairs"][0]["lease"] == lease
    leasehold.ok("lease", "revoke", lease)
    leasehold.fails(NOT_THERE, "kv", "get", key)
    said = leasehold.fails(NOT_THERE, "kv", "put", key, "1", "--lease", lease)
    assert said.startswith(f"leasehold: lease {lease} ")
    said = leasehold.fails(NOT_THERE, "kv", "put", key, "1", "--keep-lease")
    assert said == f"leasehold: key {key} does not exist, so there is no lease to keep"


def test_what_has_happened_is_told_in_order(leasehold: Command, key: str) -> None:
    first = leasehold.ok("kv", "put", key, "1", "--json").json["revision"]
    leasehold.ok("kv", "put", key, "2")
    leasehold.ok("kv", "del", key)
    watch = ("kv", "watch", key, "--start", str(first), "--count", "3")
    said = leasehold.ok(*watch)
    assert said.lines == [
        f"{first}  put  {key}  1",
        f"{first + 1}  put  {key}  2",
        f"{first + 2}  del  {key}",
    ]
    assert said.err == f"watching {key}\n"
    said = leasehold.ok(*watch, "--previous")
    assert [line.partition("(")[2] for line in said.lines] == [
        "was: missing)",
        "was: 1)",
        "was: 2)",
    ]


def test_a_watch_in_json_is_a_document_a_line(leasehold: Command, key: str) -> None:
    first = leasehold.ok("kv", "put", key, "1", "--json").json["revision"]
    leasehold.ok("kv", "del", key)
    said = leasehold.ok(
        *("kv", "watch", key, "--start", str(first), "--count", "2", "--previous", "--json")
    )
    put, gone = map(_loaded, said.lines)
    assert put == {
        "event": "put",
        "revision": first,
        "key": key,
        "value": "1",
        "create_revision": first,
        "mod_revision": first,
        "version": 1,
        "lease": None,
        "previous": None,
    }
    assert (gone["event"], gone["key"], gone["previous"]["value"]) == ("del", key, "1")


def _loaded(line: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(line)
    return loaded


def test_a_watch_ends_after_as_many_events_as_were_asked_for(leasehold: Command, key: str) -> None:
    steps = [f"--then=put {key}/{end} 1" for end in "abc"]
    first = leasehold.ok("kv", "txn", *steps, "--json").json["revision"]
    watch = ("kv", "watch", f"{key}/", "--prefix", "--start", str(first), "--count", "2")
    assert len(leasehold.ok(*watch).lines) == 2


# Transactions.


def test_a_transaction_says_whether_its_conditions_hold(leasehold: Command, key: str) -> None:
    txn = ("kv", "txn", "--if", f"{key} missing", "--then", f"put {key} me", "--else", f"get {key}")
    said = leasehold.ok(*txn)
    assert said.lines[0].startswith("the conditions hold, at revision ")
    assert said.lines[1:] == [f"{key} is set"]
    said = leasehold(*txn)
    assert said.code == NOT_MET
    assert said.lines[0].startswith("the conditions do not hold, at revision ")
    assert said.lines[2].split()[-1] == "me"
    found = leasehold(*txn, "--json")
    assert found.code == NOT_MET
    assert found.json["succeeded"] is False
    (result,) = found.json["results"]
    assert (result["step"], result["pairs"][0]["value"]) == ("get", "me")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("exists", True),
        ("missing", False),
        ("value = 2", True),
        ("value == 2", True),
        ("value != 2", False),
        ("value < 3", True),
        ("value > 3", False),
        ("version = 2", True),
        ("version > 2", False),
        ("create_revision > 1", True),
        ("mod_revision < 2", False),
        ("lease = 7a21", True),
        ("lease != 0x7a21", False),
        ("lease = 0", False),
    ],
)
def test_each_kind_of_condition(leasehold: Command, condition: str, holds: bool) -> None:
    leasehold("lease", "grant", "600", "--id", "7a21")
    key = next(_names)
    leasehold.ok("kv", "put", key, "1")
    leasehold.ok("kv", "put", key, "2", "--lease", "7a21")
    said = leasehold("kv", "txn", "--if", f"{key} {condition}", "--then", f"del {key}")
    assert said.code == (0 if holds else NOT_MET), said
    assert leasehold("kv", "get", key).code == (NOT_THERE if holds else 0)


def test_a_transaction_is_read_from_standard_input(leasehold: Command, key: str) -> None:
    text = f"""
    # a key of its own, with two lines
    if {key} missing
    then put {key} 'one
two'
    then get {key} --prefix --limit 1
    else del {key}
    """
    said = leasehold.ok("kv", "txn", "--json", stdin=text.encode())
    put, got = said.json["results"]
    assert (put["step"], got["step"]) == ("put", "get")
    assert got["pairs"][0]["value"] == "one\ntwo"
    assert leasehold("kv", "txn", stdin=text.encode()).code == NOT_MET
    leasehold.fails(NOT_THERE, "kv", "get", key)


def test_a_transaction_that_changes_a_key_twice_is_refused(leasehold: Command, key: str) -> None:
    said = leasehold.fails(USAGE_ERROR, "kv", "txn", f"--then=put {key} 1", f"--then=del {key}")
    assert said == f"leasehold: key {key} is changed twice in one transaction: change it once"


def test_a_transaction_without_conditions_is_done(leasehold: Command, key: str) -> None:
    said = leasehold.ok("kv", "txn", "--then", f"put {key} 1", "--then", "del nobody/ --prefix")
    assert said.lines[0].startswith("done, at revision ")
    assert said.lines[1:] == [f"{key} is set", "0 keys deleted"]


def test_a_transaction_with_a_lease_that_is_not_there(leasehold: Command, key: str) -> None:
    said = leasehold.fails(NOT_THERE, "kv", "txn", "--then", f"put {key} 1 --lease fade")
    assert said.startswith("leasehold: lease 000000000000fade does not exist")


# What is refused.


def test_revisions_that_are_not_there(leasehold: Command, key: str) -> None:
    said = leasehold.fails(FAILURE, "kv", "get", key, "--rev", "999999")
    assert said.startswith("leasehold: revision 999999 is in the future")


def test_a_value_that_is_too_long_is_refused(leasehold: Command, key: str) -> None:
    said = leasehold.fails(USAGE_ERROR, "kv", "put", key, "-", stdin=b"x" * 2_000_000)
    assert "at most 1,572,864 bytes" in said


@pytest.mark.parametrize("command", [("get", ""), ("put", "", "x"), ("del", "")])
def test_an_empty_key_is_refused(leasehold: Command, command: tuple[str, ...]) -> None:
    assert "key must not be empty" in leasehold.fails(USAGE_ERROR, "kv", *command)
