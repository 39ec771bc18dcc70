"""Names, and what keys of locks say: by whomever they were written."""

from collections.abc import Callable
from typing import Any

import pytest

from leasehold import Client
from leasehold.locks.lock_keys import (
    MAX_NAME,
    MAX_NUMBER,
    MAX_WHO,
    Claim,
    contender_span,
    name_of,
)
from leasehold.locks.lock_queue import LockQueue
from leasehold.locks.recipe_context import check_who
from leasehold.sessions.session import hex_of
from tests.support.faulty_engine import World, play

RECIPES: dict[str, Callable[[Client, Any], object]] = {
    "lock": lambda client, name: client.lock(name),
    "rwlock": lambda client, name: client.rwlock(name),
    "semaphore": lambda client, name: client.semaphore(name, limit=1),
    "barrier": lambda client, name: client.barrier(name, 2),
    "election": lambda client, name: client.election(name),
}


# Claims.


@pytest.mark.parametrize(
    "value",
    [
        b'{"who":"x","count":-1}',
        b'{"who":"x","count":%d}' % (MAX_NUMBER + 1),
        b'{"who":"x","count":' + b"9" * 4_000 + b"}",
        b'{"who":"x","count":true}',
        b'{"who":"x","count":1.0}',
        b'{"who":"x","count":1e400}',
        b'{"who":"x","denies":-1}',
        b'{"who":"x","denies":%d}' % (MAX_NUMBER + 1),
        b'{"who":"x","denies":true}',
        b'{"who":7}',
        b'["who"]',
        b"[" * 200_000,
        b"\xff",
    ],
    ids=lambda value: value[:30].decode(errors="replace"),
)
def test_what_none_of_our_clients_says_is_no_claim(value: bytes) -> None:
    assert Claim.decode(value) is None


@pytest.mark.parametrize("number", [0, 1, MAX_NUMBER])
def test_a_claim_is_read_as_it_was_written(number: int) -> None:
    claim = Claim("wörker 7", number, tries=True, denies=number)
    assert Claim.decode(claim.encode()) == claim


def test_who_has_it_can_be_shown_whatever_somebody_calls_itself() -> None:
    claim = Claim.decode(b'{"who":"\\ud800\\n\\u001b[2J' + b"x" * 1_000 + b'"}')
    assert claim is not None
    assert claim.who.startswith("\\ud800\\n\\x1b[2Jxx")
    assert claim.who.isprintable()
    assert claim.who.count("x") <= MAX_WHO


# Keys.


@pytest.mark.parametrize(
    "tail",
    [
        b"1",
        b"7a",
        b"7fffffffffffffff",  # MaxInt64
        b"-1",
        b"-7a",
        b"-8000000000000000",  # MinInt64
        b"fffffffffffffffb",  # -5 as clients write it that print lease ids as unsigned numbers
    ],
)
def test_a_lease_id_in_lower_case_hexadecimal_counts(tail: bytes) -> None:
    assert LockQueue(b"a").counts(b"a/" + tail)
    first, last = contender_span(b"a/")
    assert first <= b"a/" + tail < last


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"0",
        b"-0",
        b"-",
        b"--1",
        b"07a",
        b"-07a",
        b"7A",
        b"-7A",
        b"0x7a",
        b"+7a",
        b" 7a",
        b"7a\n",
        b"7g",
        b"-7a/1",
        b"1" * 17,
        b"-" + b"1" * 17,
    ],
)
def test_other_forms_of_a_lease_id_do_not_count(tail: bytes) -> None:
    assert not LockQueue(b"a").counts(b"a/" + tail)


@pytest.mark.parametrize("lease", [1, 2**63 - 1, -1, -(2**63)])
def test_the_key_of_every_lease_counts(lease: int) -> None:
    assert LockQueue(b"a").counts(b"a/" + hex_of(lease))


# Names.


@pytest.mark.parametrize("who", ["a\nb", "a\x00", "\x1b[2J", "a\u2028b", "\x9b"])
def test_a_client_is_not_called_what_breaks_a_line(who: str) -> None:
    with pytest.raises(ValueError, match="name must be text without line ends"):
        check_who(who)


def test_a_client_is_not_called_what_cannot_be_written() -> None:
    with pytest.raises(
        ValueError, match=r"name must be text that can be encoded as UTF-8, not '\\ud800'"
    ):
        check_who("\ud800")
    assert check_who("wörker 7 日本") == "wörker 7 日本"


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_name_has_a_limit(recipe: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        RECIPES[recipe](client, "é" * (MAX_NAME // 2))
        with pytest.raises(ValueError, match=f"name must have at most {MAX_NAME} bytes, got 4098"):
            RECIPES[recipe](client, "é" * (MAX_NAME // 2 + 1))

    play(scene)


def test_the_longest_name_can_be_acquired() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        async with client.lock("x" * MAX_NAME, timeout=1), client.rwlock("y" * MAX_NAME).read(1):
            pass

    play(scene)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    "name", ["leasehold/sessions", b"leasehold/sessions/", "leasehold/sessions/1f"]
)
def test_nothing_is_called_like_the_keys_of_sessions(recipe: str, name: str | bytes) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ValueError, match="which is reserved for sessions"):
            RECIPES[recipe](world.client("me"), name)

    play(scene)


@pytest.mark.parametrize("name", [b"leasehold", b"leasehold/sessions2", b"x/leasehold/sessions/1"])
def test_other_names_may_be_like_them(name: bytes) -> None:
    assert name_of(name) == name
