"""Long reads beside other calls: transactions that only read, and reads of the past."""

import asyncio
import random
from pathlib import Path
from unittest.mock import patch

from leasehold import open_engine
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.journal import journal as journals
from leasehold.journal import journal_rows
from leasehold.journal.journal_rows import read_row
from leasehold.keyspace.operations import Compare, Put, Range, Relation, Target, Txn
from leasehold.keyspace.ranges import LONG

MANY = LONG + 500
ALL = (b"k", b"l")


async def fill(engine: EmbeddedEngine, value: bytes, count: int = MANY) -> int:
    """Put all keys, in no order, fifty to a revision; return the last revision."""
    names = [b"k%06d" % number for number in range(count)]
    random.Random(1).shuffle(names)
    revision = 0
    for first in range(0, count, 50):
        puts = [Put(name, value) for name in names[first : first + 50]]
        revision = (await engine.txn([], puts)).revision
    return revision


def test_a_transaction_that_only_reads_does_not_keep_others_from_writing() -> None:
    async def main() -> None:
        async with open_engine("memory:") as engine:
            assert isinstance(engine, EmbeddedEngine)
            old = await fill(engine, b"old")
            await fill(engine, b"new")
            store = engine._store
            before = store.revision
            held = Compare(b"k", Target.VERSION, Relation.EQUAL, 2, b"l")
            inner = Txn([held], [Range(*ALL, revision=old)], [])
            reading = asyncio.ensure_future(engine.txn([held], [Range(*ALL), inner]))
            while not store.pins:  # noqa: ASYNC110  until it has begun
                await asyncio.sleep(0)
            writes = 0
            while not reading.done():
                assert not store.is_busy
                await engine.put(b"k%06d" % writes, b"newer")
                writes += 1
            outcome = await reading
            assert writes
            assert outcome.succeeded
            assert outcome.revision == before
            now, nested = outcome.results
            assert {pair.value for pair in now.pairs} == {b"new"}
            assert len(now.pairs) == MANY
            assert {pair.value for pair in nested.results[0].pairs} == {b"old"}
            assert not store.pins

    asyncio.run(main())


def test_a_range_of_the_past_decodes_each_row_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_engine(tmp_path) as engine:
            assert isinstance(engine, EmbeddedEngine)
            old = await fill(engine, b"old")
            await fill(engine, b"new")
        async with open_engine(tmp_path) as engine:  # now the past is on disk only
            with patch.object(journal_rows, "read_row", wraps=read_row) as read:
                found = await engine.range(*ALL, revision=old)
            assert [pair.key for pair in found.pairs] == [b"k%06d" % n for n in range(MANY)]
            assert {pair.value for pair in found.pairs} == {b"old"}
            assert read.call_count <= MANY // 50

    asyncio.run(main())


def test_reading_old_values_stops_for_commits(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_engine(tmp_path) as engine:
            assert isinstance(engine, EmbeddedEngine)
            old = await fill(engine, b"old", 200)
            await fill(engine, b"new", 200)
        async with open_engine(tmp_path) as engine:
            with (
                patch.object(journal_rows, "VALUES_S", 0.0),
                patch.object(journals.Journal, "values", autospec=True) as values,
            ):
                values.side_effect = _real_values
                found = await engine.range(*ALL, revision=old)
            assert len(found.pairs) == 200
            assert values.call_count >= 200 // journal_rows.VALUES_PER_CLOCK_READ

    asyncio.run(main())


_real_values = journals.Journal.values
