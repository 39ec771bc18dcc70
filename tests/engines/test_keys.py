"""Keys on any engine: put, range, delete, transactions, compaction, and what is refused."""

import asyncio
from typing import Any

import pytest

from leasehold import (
    FROM_KEY,
    Compacted,
    Compare,
    Delete,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    Put,
    Range,
    Relation,
    SortBy,
    Target,
    TooManyOperations,
    Txn,
    UnknownKey,
    UnknownLease,
)
from leasehold.engine.interface import Engine
from tests.engines.conftest import Place
from tests.support.asynchronous import asynchronous

BEYOND = 1 << 40
"""A revision that no server comes to."""


async def revision_of(engine: Engine) -> int:
    return (await engine.range(b"\0", count_only=True)).revision


@asynchronous
async def test_what_was_put_is_read_with_its_revisions(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        first = await engine.put(key, b"1")
        second = await engine.put(key, b"2")
        assert first.previous is None
        assert second.revision == first.revision + 1
        assert second.previous is not None
        assert second.previous.value == b"1"
        found = await engine.range(key)
        [pair] = found.pairs
        assert (pair.key, pair.value, pair.version, pair.lease) == (key, b"2", 2, 0)
        assert (pair.create_revision, pair.mod_revision) == (first.revision, second.revision)
        assert (found.revision, found.total, found.more) == (second.revision, 1, False)
        assert f"{key!r}: b'2' (version 2" in repr(pair)
        assert pair == (await engine.range(key, revision=second.revision)).pairs[0]
        assert pair != (await engine.range(key, revision=first.revision)).pairs[0]


@asynchronous
async def test_a_put_may_keep_the_value_or_the_lease(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        lease = (await engine.grant(60)).id
        with pytest.raises(UnknownKey, match=r"/a' does not exist") as refused:
            await engine.put(key, None)
        assert refused.value.key == key
        with pytest.raises(UnknownKey):
            await engine.put(key, b"1", lease=None)
        await engine.put(key, b"1", lease=lease)
        await engine.put(key, b"2", lease=None)
        assert (await engine.range(key)).pairs[0].lease == lease
        await engine.put(key, None)
        [pair] = (await engine.range(key)).pairs
        assert (pair.value, pair.lease) == (b"2", 0)
        assert (await engine.time_to_live(lease, keys=True)).keys == ()


@asynchronous
async def test_empty_values_and_any_bytes_are_kept_as_they_are(place: Place) -> None:
    async with place.open() as engine:
        every = bytes(range(256))
        await engine.put(place.key(every), every)
        await engine.put(place.key(b"empty"), b"")
        found = await engine.range(place.prefix, place.end)
        assert {pair.key: pair.value for pair in found.pairs} == {
            place.key(every): every,
            place.key(b"empty"): b"",
        }


@asynchronous
async def test_a_range_has_all_its_options_now_and_in_the_past(place: Place) -> None:
    async with place.open() as engine:
        before = await revision_of(engine)
        for number, name in enumerate([b"c", b"a", b"b", b"a"]):
            await engine.put(place.key(name), b"%d" % -number)
        then = before + 4
        await engine.delete(place.prefix, place.end)

        async def names(**options: Any) -> list[bytes]:
            found = await engine.range(place.prefix, place.end, revision=then, **options)
            return [pair.key.removeprefix(place.prefix) for pair in found.pairs]

        assert list((await engine.range(place.prefix, place.end)).pairs) == []
        assert await names() == [b"a", b"b", b"c"]
        assert await names(descending=True) == [b"c", b"b", b"a"]
        assert await names(sort_by=SortBy.MOD_REVISION) == [b"c", b"b", b"a"]
        assert await names(sort_by=SortBy.CREATE_REVISION) == [b"c", b"a", b"b"]
        assert await names(sort_by=SortBy.VERSION, descending=True) == [b"a", b"b", b"c"]
        assert await names(sort_by=SortBy.VALUE) == [b"b", b"a", b"c"]
        assert await names(min_mod_revision=before + 3) == [b"a", b"b"]
        assert await names(max_mod_revision=before + 3, min_create_revision=before + 2) == [b"b"]
        assert await names(max_create_revision=before + 1) == [b"c"]
        cut = await engine.range(place.prefix, place.end, revision=then, limit=2)
        assert (len(cut.pairs), cut.total, cut.more) == (2, 3, True)
        count = await engine.range(place.prefix, place.end, revision=then, count_only=True)
        assert (list(count.pairs), count.total, count.revision) == ([], 3, then)
        alone = await engine.range(place.key(b"a"), revision=then)
        assert [pair.key for pair in alone.pairs] == [place.key(b"a")]
        onwards = await engine.range(place.key(b"b"), FROM_KEY, revision=then, limit=1)
        assert [pair.key for pair in onwards.pairs] == [place.key(b"b")]


@asynchronous
async def test_a_range_that_ends_before_it_begins_is_empty(place: Place) -> None:
    async with place.open() as engine:
        await engine.put(place.key(b"a"), b"")
        found = await engine.range(place.key(b"b"), place.key(b"a"))
        assert (list(found.pairs), found.total) == ([], 0)
        assert (await engine.delete(place.key(b"b"), place.key(b"a"))).deleted == 0


@asynchronous
async def test_a_delete_tells_what_is_gone_and_none_keeps_the_revision(place: Place) -> None:
    async with place.open() as engine:
        for name in (b"b", b"a", b"c"):
            last = (await engine.put(place.key(name), name)).revision
        gone = await engine.delete(place.key(b"a"), place.key(b"c"), previous=True)
        assert (gone.revision, gone.deleted) == (last + 1, 2)
        assert [pair.value for pair in gone.previous] == [b"a", b"b"]
        again = await engine.delete(place.key(b"a"), place.key(b"c"), previous=True)
        assert (again.revision, again.deleted, list(again.previous)) == (last + 1, 0, [])
        assert (await engine.delete(place.key(b"c"))).deleted == 1


@asynchronous
async def test_a_delete_returns_the_keys_only_if_it_is_asked_to(place: Place) -> None:
    async with place.open() as engine:
        for name in (b"a", b"b", b"c", b"d"):
            last = (await engine.put(place.key(name), name)).revision
        a, b, c, d, end = map(place.key, (b"a", b"b", b"c", b"d", b"e"))
        assert await engine.delete(a, b) == (last + 1, 1, ())
        done = await engine.txn([], [Delete(b), Delete(c, prev_kv=True), Txn([], [Delete(d, end)])])
        without, with_previous, nested = done.results
        assert (without.deleted, list(without.previous)) == (1, [])
        assert [pair.key for pair in with_previous.previous] == [c]
        assert (nested.results[0].deleted, list(nested.results[0].previous)) == (1, [])


@asynchronous
async def test_a_transaction_takes_one_branch_at_one_revision(place: Place) -> None:
    async with place.open() as engine:
        a, b, n, x = map(place.key, (b"a", b"b", b"n", b"x"))
        before = (await engine.put(a, b"1")).revision
        held = Compare(a, Target.VALUE, Relation.EQUAL, b"1")
        inner = Txn([Compare(x, Target.VERSION, Relation.EQUAL, 0)], [Put(n, b"yes")])
        done = await engine.txn(
            [held],
            [Put(b, b"2"), Range(a, x), Delete(a, prev_kv=True), inner],
            [Put(place.key(b"never"), b"")],
        )
        assert (done.succeeded, done.revision) == (True, before + 1)
        put, found, deleted, nested = done.results
        assert (put.revision, put.previous) == (before + 1, None)
        assert [pair.key for pair in found.pairs] == [a, b]
        assert (deleted.deleted, deleted.previous[0].value) == (1, b"1")
        assert (nested.succeeded, nested.revision) == (True, before + 1)
        assert nested.results[0].revision == before + 1
        otherwise = await engine.txn([held], [], [Range(place.prefix, place.end)])
        assert otherwise.succeeded is False
        assert [pair.key for pair in otherwise.results[0].pairs] == [b, n]
        assert otherwise.revision == before + 1


@pytest.mark.parametrize(
    ("target", "right", "wrong"),
    [
        (Target.VERSION, 2, 1),
        (Target.VALUE, b"2", b"1"),
        (Target.LEASE, 0, 5),
        (Target.CREATE_REVISION, "created", 1),
        (Target.MOD_REVISION, "changed", 1),
    ],
)
@asynchronous
async def test_conditions_compare_all_that_a_key_has(
    place: Place, target: Target, right: Any, wrong: Any
) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        revisions = {
            "created": (await engine.put(key, b"1")).revision,
            "changed": (await engine.put(key, b"2")).revision,
        }
        operand = revisions.get(right, right) if isinstance(right, str) else right

        async def holds(relation: Relation, with_what: Any, end: bytes = b"") -> bool:
            compare = Compare(key, target, relation, with_what, end)
            return (await engine.txn([compare])).succeeded

        assert await holds(Relation.EQUAL, operand)
        assert await holds(Relation.EQUAL, operand, place.end)
        assert not await holds(Relation.EQUAL, wrong)
        assert await holds(Relation.NOT_EQUAL, wrong)
        assert not await holds(Relation.LESS, operand)
        assert not await holds(Relation.GREATER, operand)


@asynchronous
async def test_a_transaction_that_is_refused_does_nothing(place: Place) -> None:
    async with place.open() as engine:
        a, b, many = place.key(b"a"), place.key(b"b"), engine.limits.txn_operations + 1
        before = await revision_of(engine)
        refused: list[tuple[type[Exception], list[Any]]] = [
            (DuplicateKey, [Put(a, b""), Put(a, b"")]),
            (DuplicateKey, [Put(a, b""), Delete(a, b)]),
            (TooManyOperations, [Put(place.key(b"%d" % number), b"") for number in range(many)]),
            (EmptyKey, [Put(a, b""), Put(b"", b"")]),
            (UnknownLease, [Put(a, b""), Put(b, b"", 99)]),
            (UnknownKey, [Put(a, b""), Put(b, None)]),
            (UnknownKey, [Delete(a, place.end), Put(place.end, None)]),
            (FutureRevision, [Put(a, b""), Range(b, revision=BEYOND)]),
            (TypeError, [Put(a, b""), "put"]),
            (TypeError, [Put(a, "text")]),  # type: ignore[arg-type]
            (ValueError, [Put(a, bytes(engine.limits.request_bytes + 1))]),
        ]
        for error, steps in refused:
            with pytest.raises(error):
                await engine.txn([], steps)
        found = await engine.range(place.prefix, place.end)
        assert (found.revision, found.total) == (before, 0)


@asynchronous
async def test_a_refused_transaction_names_what_is_missing(place: Place) -> None:
    async with place.open() as engine:
        a, b = place.key(b"a"), place.key(b"b")
        with pytest.raises(UnknownLease) as unknown:
            await engine.txn([], [Put(a, b""), Put(b, b"", 99)])
        assert unknown.value.lease == 99
        with pytest.raises(UnknownKey) as missing:
            await engine.txn([], [Put(a, b""), Put(b, None)])
        assert missing.value.key == b
        with pytest.raises(FutureRevision) as future:
            await engine.txn([], [Put(a, b""), Range(b, revision=BEYOND)])
        assert future.value.asked_for == BEYOND


@asynchronous
async def test_what_is_too_large_is_refused_and_what_is_not_is_taken(place: Place) -> None:
    async with place.open() as engine:
        key, most = place.key(b"large"), engine.limits.request_bytes
        with pytest.raises(ValueError, match="request must have at most"):
            await engine.put(key, bytes(most))
        await engine.put(key, bytes(most - 1_000))
        assert len((await engine.range(key)).pairs[0].value) == most - 1_000


@asynchronous
async def test_compaction_forgets_and_says_so(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"a")
        revisions = [(await engine.put(key, b"%d" % number)).revision for number in range(5)]
        assert await engine.compact(revisions[2], wait=True) == revisions[4]
        with pytest.raises(Compacted, match=f"revision {revisions[1]} was compacted") as forgotten:
            await engine.range(key, revision=revisions[1])
        assert forgotten.value.asked_for == revisions[1]
        assert (await engine.range(key, revision=revisions[2])).pairs[0].value == b"2"
        assert (await engine.range(key, revision=revisions[3])).pairs[0].value == b"3"
        with pytest.raises(Compacted):
            await engine.compact(revisions[2])
        with pytest.raises(FutureRevision, match=f"{BEYOND} is in the future"):
            await engine.compact(BEYOND)
        with pytest.raises(FutureRevision):
            await engine.range(key, revision=BEYOND)
        await engine.compact(revisions[4])
        assert (await engine.range(key)).pairs[0].value == b"4"


@asynchronous
async def test_calls_at_the_same_time_are_done_one_after_the_other(place: Place) -> None:
    async with place.open() as engine:
        key = place.key(b"counter")

        async def count() -> None:
            while True:
                [*found] = (await engine.range(key)).pairs
                version = found[0].version if found else 0
                compare = Compare(key, Target.VERSION, Relation.EQUAL, version)
                if (await engine.txn([compare], [Put(key, b"%d" % (version + 1))])).succeeded:
                    return

        await asyncio.gather(*[count() for _ in range(20)])
        [pair] = (await engine.range(key)).pairs
        assert (pair.value, pair.version) == (b"20", 20)


@asynchronous
async def test_wrong_types_are_refused_by_name(place: Place) -> None:
    async with place.open() as engine:
        wrong: Any = "text"
        for call in (
            lambda: engine.put(wrong, b""),
            lambda: engine.put(b"a", wrong),
            lambda: engine.put(b"a", b"", lease=wrong),
            lambda: engine.range(wrong),
            lambda: engine.range(b"a", wrong),
            lambda: engine.range(b"a", limit=wrong),
            lambda: engine.delete(wrong),
            lambda: engine.grant(wrong),
            lambda: engine.grant(True),
            lambda: engine.grant(10, lease=wrong),
            lambda: engine.renew(wrong),
            lambda: engine.renew_all([wrong]),
            lambda: engine.revoke(wrong),
            lambda: engine.time_to_live(wrong),
            lambda: engine.txn([wrong]),
            lambda: engine.compact(wrong),
        ):
            with pytest.raises(TypeError, match="must be"):
                await call()
        with pytest.raises(TypeError, match="must be"):
            engine.watch(wrong)


@asynchronous
async def test_wrong_values_are_refused_by_name(place: Place) -> None:
    async with place.open() as engine:
        for call in (
            lambda: engine.range(b"a", revision=-1),
            lambda: engine.range(b"a", limit=-1),
            lambda: engine.compact(-1),
            lambda: engine.grant(10, lease=1 << 63),
        ):
            with pytest.raises(
                ValueError, match=r"must not be negative|must fit in a signed 64-bit integer"
            ):
                await call()
        with pytest.raises(ValueError, match="start must be a revision"):
            engine.watch(b"a", start=-1)
        for empty in (engine.put(b"", b""), engine.range(b""), engine.delete(b"")):
            with pytest.raises(EmptyKey):
                await empty
        with pytest.raises(EmptyKey):
            engine.watch(b"")


@asynchronous
async def test_a_transaction_may_only_read(place: Place) -> None:
    async with place.open() as engine:
        key, other = place.key(b"a"), place.key(b"b")
        put = await engine.put(key, b"1")
        is_there = Compare(key, Target.VERSION, Relation.EQUAL, 1)
        read = await engine.txn([is_there], [Range(key), Range(other)], [Range(other)])
        assert [len(found.pairs) for found in read.results] == [1, 0]
        assert (read.succeeded, read.revision) == (True, put.revision)
        await engine.put(key, b"2")
        read = await engine.txn([is_there], [Range(key), Range(other)], [Range(other)])
        assert [len(found.pairs) for found in read.results] == [0]
        assert not read.succeeded
