"""The language of `leasehold kv txn`: what it means, and what is wrong with what it does not."""

import io

import pytest

from leasehold.cli.kv_txn import TxnError, condition_of, read_txn, step_of
from leasehold.engine.key import Key
from leasehold.keyspace.operations import Delete, Put, Range


@pytest.mark.parametrize(
    ("words", "condition"),
    [
        ("a exists", Key("a").exists()),
        ("a missing", Key("a").is_missing()),
        ("a value = 1", Key("a").value == "1"),
        ("a value == =", Key("a").value == "="),
        ("a value != x", Key("a").value != "x"),
        ("a version > 2", Key("a").version > 2),
        ("a create_revision < 2", Key("a").create_revision < 2),
        ("a mod_revision = 0", Key("a").mod_revision == 0),
        ("a lease = 7a11", Key("a").lease == 0x7A11),
        ("a lease = dec:17", Key("a").lease == 17),
        ("a lease != 0", Key("a").lease != 0),
        ("exists exists", Key("exists").exists()),
    ],
)
def test_a_condition(words: str, condition: object) -> None:
    assert condition_of(words.split()) == condition


@pytest.mark.parametrize(
    ("words", "step"),
    [
        ("put a 1", Put(b"a", b"1")),
        ("put a 1 --lease 7a11", Put(b"a", b"1", 0x7A11)),
        ("put a 1 --keep-lease", Put(b"a", b"1", None)),
        ("put a -5", Put(b"a", b"-5")),
        ("put -- a --x", Put(b"a", b"--x")),
        ("get a", Range(b"a")),
        ("get a --prefix --limit 3", Range(b"a", b"b", limit=3)),
        ("del a", Delete(b"a")),
        ("del a --prefix", Delete(b"a", b"b")),
    ],
)
def test_a_step_is_written_like_the_command(words: str, step: object) -> None:
    assert step_of(words.split()) == step


def test_every_key_is_a_prefix_without_a_name() -> None:
    assert step_of(["get", "", "--prefix"]) == Range(b"\0", b"\0")
    assert step_of(["del", "", "--prefix"]) == Delete(b"\0", b"\0")


def test_a_line_begins_with_what_it_is() -> None:
    text = b"# first\n\nif a missing\n  then put a 'x\n\ny'\nelse get a\nthen del b\n"
    txn = read_txn([], [], [], io.BytesIO(text))
    assert txn.conditions == [Key("a").is_missing()]
    assert txn.success == [Put(b"a", b"x\n\ny"), Delete(b"b")]
    assert txn.failure == [Range(b"a")]


def test_bytes_that_are_no_text_are_taken_as_they_are() -> None:
    txn = read_txn([], [], [], io.BytesIO(b"then put a \xff\n"))
    assert txn.success == [Put(b"a", b"\xff")]


def test_flags_and_lines_are_the_same_words() -> None:
    from_flags = read_txn(["a missing"], ["put a '1 2'"], ["get a"], None)
    lines = b"if a missing\nthen put a '1 2'\nelse get a\n"
    assert from_flags == read_txn([], [], [], io.BytesIO(lines))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("maybe a exists", r"line 1: 'maybe' is not if, then or else"),
        ("if", r"line 1: '' is not a condition: write KEY exists"),
        ("if a", r"line 1: 'a' is not a condition: write KEY exists"),
        ("if a value", r"is not a condition"),
        ("if a value = 1 2", r"is not a condition"),
        ("if a value ~ 1", r"is not a condition.*=, !=, < or >"),
        ("if a mod = 1", r"line 1: unknown field 'mod': did you mean mod_revision\?"),
        ("if a valeu = 1", r"unknown field 'valeu': did you mean value\?"),
        ("if a zzz = 1", r"unknown field 'zzz': choose from value, version"),
        ("if a version = x", r"version must be compared with a number, such as 1; got 'x'"),
        ("if a version = -1", r"version must be compared with a number"),
        ("if a version = 9223372036854775808", r"version must be compared with a number"),
        ("if a lease = zz", r"'zz' is not a lease id"),
        ("then", r"line 1: '' is not a step: write put, get or del"),
        ("then move a b", r"'move' is not a step: write put, get or del"),
        ("then put a", r"put: the following arguments are required: VALUE"),
        ("then put a b c", r"put: unexpected argument 'c'"),
        ("then put a b --lase 1", r"put: unknown option --lase: did you mean --lease\?"),
        ("then put a b --lease 1 --keep-lease", r"not allowed with"),
        ("then get a --limit 0", r"must be a whole number of at least 1"),
        ("then put a 'b", r"line 1: unclosed quote"),
        ("", r"the transaction is empty: give --then"),
        ("# only words", r"the transaction is empty: give --then"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(line: str, said: str) -> None:
    with pytest.raises(TxnError, match=said):
        read_txn([], [], [], io.BytesIO(line.encode()))


def test_what_is_wrong_in_a_flag_is_told_with_it() -> None:
    with pytest.raises(TxnError, match=r"--else 'frob': 'frob' is not a step"):
        read_txn(["a exists"], ["get a"], ["frob"], None)
    with pytest.raises(TxnError, match=r"has an unclosed quote"):
        read_txn([], ["put a 'b"], [], None)
