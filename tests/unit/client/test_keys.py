"""Keys, values and transactions, as users write them down."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import leasehold
from leasehold import Client, DuplicateKey, Key, LeaseLost
from leasehold.engine.key import range_of, to_bytes
from leasehold.keyspace.operations import Compare, Delete, Put, Range, Relation, Target
from leasehold.testing import Host
from tests.support.scripted_engine import ScriptedEngine, play

Work = Callable[[Client], Coroutine[Any, Any, None]]


def run(work: Work) -> None:
    """Do something with a client of an engine in this process."""

    async def main() -> None:
        async with leasehold.open("memory:") as client:
            await work(client)

    asyncio.run(main())


# Texts.


@pytest.mark.parametrize(
    ("given", "data"),
    [(b"\xff", b"\xff"), ("a", b"a"), ("ä", b"\xc3\xa4"), ("", b""), (b"", b"")],
)
def test_text_is_utf_8_and_bytes_are_themselves(given: bytes | str, data: bytes) -> None:
    assert to_bytes(given, "value") == data


@pytest.mark.parametrize("bad", [None, 5, 5.0, ["a"], bytearray(b"a"), memoryview(b"a")])
def test_what_is_neither_is_refused_by_its_name(bad: Any) -> None:
    with pytest.raises(TypeError, match="value must be bytes or str, not "):
        to_bytes(bad, "value")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("jobs/", (b"jobs/", b"jobs0")),
        (b"\xff", (b"\xff", b"\0")),
        (b"a\xff", (b"a\xff", b"b")),
        ("", (b"\0", b"\0")),
    ],
)
def test_a_prefix_has_all_keys_that_begin_with_it(key: Any, expected: tuple[bytes, bytes]) -> None:
    assert range_of(key, b"", prefix=True) == expected


def test_end_and_prefix_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="end and prefix"):
        range_of("a", "b", prefix=True)


# Conditions.


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Key("a").value == "x", (Target.VALUE, Relation.EQUAL, b"x")),
        (Key("a").value != b"x", (Target.VALUE, Relation.NOT_EQUAL, b"x")),
        (Key("a").version > 3, (Target.VERSION, Relation.GREATER, 3)),
        (Key("a").create_revision < 3, (Target.CREATE_REVISION, Relation.LESS, 3)),
        (Key("a").mod_revision == 3, (Target.MOD_REVISION, Relation.EQUAL, 3)),
        (Key("a").lease == 0, (Target.LEASE, Relation.EQUAL, 0)),
        (Key("a").exists(), (Target.VERSION, Relation.GREATER, 0)),
        (Key("a").is_missing(), (Target.VERSION, Relation.EQUAL, 0)),
    ],
)
def test_a_condition_says_what_it_looks_like(
    made: Compare, expected: tuple[Target, Relation, int | bytes]
) -> None:
    assert made == Compare(b"a", *expected)


def test_conditions_on_a_prefix_are_on_all_its_keys() -> None:
    assert (Key("a", prefix=True).version == 1).end == b"b"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Key("a").value == 5,
        lambda: Key("a").value == None,  # noqa: E711  that is the mistake
        lambda: Key("a").version == "5",
        lambda: Key("a").version == True,  # noqa: E712  and this
        lambda: Key("a").mod_revision < 1.5,
        lambda: Key("a").value <= "x",  # type: ignore[operator]
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(wrong: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        wrong()


def test_a_property_that_was_not_compared_is_no_condition() -> None:
    with pytest.raises(TypeError, match="compare it"):
        bool(Key("a").value)
    with pytest.raises(TypeError):
        hash(Key("a").value)


def test_conditions_that_are_joined_with_and_are_not_dropped_without_a_word() -> None:
    with pytest.raises(TypeError, match="a condition has no truth value"):
        assert Key("a").version == 1 and Key("b").version == 1  # noqa: PT018  that is the mistake
    with pytest.raises(TypeError, match="a condition has no truth value"):
        bool(Key("a").value == "x")


# Steps.


def test_steps_are_what_they_say() -> None:
    assert Key("a").put("1") == Put(b"a", b"1", 0)
    assert Key("a").put(None, lease=7) == Put(b"a", None, 7)
    assert Key("a").put("1", keep_lease=True) == Put(b"a", b"1", None)
    assert Key("a", prefix=True).delete() == Delete(b"a", b"b")
    assert Key("a").get(limit=3) == Range(b"a", b"", limit=3)
    assert Key("", prefix=True).get() == Range(b"\0", b"\0")


def test_wrong_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="put needs one key"):
        Key("a", prefix=True).put("1")
    with pytest.raises(ValueError, match="mutually exclusive"):
        Key("a").put("1", lease=7, keep_lease=True)
    lease: Any = "7"
    with pytest.raises(TypeError, match="lease must be"):
        Key("a").put("1", lease=lease)


def test_a_step_under_a_lease_that_is_lost_is_refused() -> None:
    async def scene(client: Client, _engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(5.0)
        assert Key("a").put("1", lease=lease).lease == lease.id
        host.stop(5.0)
        await asyncio.sleep(0)
        with pytest.raises(LeaseLost):
            Key("a").put("1", lease=lease)

    play(scene)


# Transactions.


def test_a_transaction_does_the_one_or_the_other() -> None:
    async def work(client: Client) -> None:
        async def create() -> bool:
            txn = client.kv.txn(Key("a").is_missing())
            done = await txn.then(Key("a").put("1")).otherwise(Key("a").get()).commit()
            return done.succeeded

        assert await create()
        assert not await create()
        found = await client.kv.get("a")
        assert found is not None
        assert found.version == 1

    run(work)


def test_conditions_and_steps_add_up() -> None:
    async def work(client: Client) -> None:
        txn = client.kv.txn(Key("a").is_missing()).when(Key("b").is_missing())
        done = await txn.then(Key("a").put("1")).then(Key("b").put("2")).commit()
        assert done.succeeded
        assert len(done.results) == 2
        assert (await client.kv.range("", prefix=True)).total == 2

    run(work)


@pytest.mark.parametrize("wrong", [False, True, None, "a == 1", Key("a"), Key("a").put("1")])
def test_what_is_no_condition_is_refused(wrong: Any) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(TypeError, match="condition must be made with Key"):
            client.kv.txn(wrong)

    run(work)


@pytest.mark.parametrize("wrong", [None, "a", Key("a"), Key("a").is_missing()])
def test_what_is_no_step_is_refused(wrong: Any) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(TypeError, match="step of a transaction must be made with Key"):
            client.kv.txn().then(wrong)
        with pytest.raises(TypeError, match="step of a transaction must be made with Key"):
            client.kv.txn().otherwise(wrong)

    run(work)


def test_a_call_of_kv_is_no_step_and_is_not_left_lying_about() -> None:
    async def work(client: Client) -> None:
        call: Any = client.kv.put("a", "1")
        with pytest.raises(TypeError, match="step of a transaction must be"):
            client.kv.txn().then(call)

    run(work)  # with warnings as errors, a coroutine that nobody awaits would fail it


def test_a_key_cannot_be_changed_twice_in_one_transaction() -> None:
    async def work(client: Client) -> None:
        with pytest.raises(DuplicateKey):
            await client.kv.txn().then(Key("a").put("1"), Key("a").put("2")).commit()
        assert await client.kv.get("a") is None

    run(work)


# Calls.


def test_wrong_arguments_of_calls_are_refused_and_nothing_is_left_lying_about() -> None:
    async def work(client: Client) -> None:
        wrong: Any
        for wrong in (0, -1.0, float("nan"), "5", True):
            with pytest.raises((TypeError, ValueError), match="timeout"):
                await client.kv.get("a", timeout=wrong)
            with pytest.raises((TypeError, ValueError), match="timeout"):
                await client.kv.put("a", "b", timeout=wrong)
        for wrong in (None, 5):
            with pytest.raises(TypeError, match="key must be bytes or str"):
                await client.kv.get(wrong)
        wrong = 5
        with pytest.raises(TypeError, match="value must be bytes or str"):
            await client.kv.put("a", wrong)
        with pytest.raises(ValueError, match="mutually exclusive"):
            await client.kv.put("a", "b", lease=5, keep_lease=True)
        assert (await client.kv.range("", prefix=True)).total == 0

    run(work)


def test_a_put_may_keep_the_value_or_the_lease() -> None:
    async def work(client: Client) -> None:
        async with client.lease(60) as lease:
            await client.kv.put("a", "1", lease=lease)
            await client.kv.put("a", "2", keep_lease=True)
            found = await client.kv.get("a")
            assert found is not None
            assert (found.text, found.lease) == ("2", lease.id)
            await client.kv.put("a", None)
            found = await client.kv.get("a")
            assert found is not None
            assert (found.text, found.lease) == ("2", 0)

    run(work)


def test_all_keys_are_read_and_deleted_with_an_empty_prefix() -> None:
    async def work(client: Client) -> None:
        for key in ("a", "b", b"\xff"):
            await client.kv.put(key, "1")
        assert (await client.kv.range("", prefix=True)).total == 3
        assert (await client.kv.delete("", prefix=True)).deleted == 3

    run(work)
