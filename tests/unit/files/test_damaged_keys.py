"""Keys of files that are missing or cannot be decoded: an error with the path of the file."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import leasehold
from leasehold.engine.values import LeaseInfo
from leasehold.errors import FileDamaged, FileNotFound, LockLost
from leasehold.files.file_keys import block_key, record_key
from tests.support.asynchronous import asynchronous

NOT_DECODABLE = b"\xff"


@asynccontextmanager
async def stored(tmp_path: Path) -> AsyncIterator[leasehold.Client]:
    """Open a client with files of several blocks, `d/x` and `d/y`."""
    async with await leasehold.open("memory:") as client:
        store = tmp_path / "store"
        store.mkdir()
        await client.files.configure(add=[str(store)], block_bytes=4)
        for path in ("d/x", "d/y"):
            async with client.files.create(path) as file:
                await file.write(b"aaaabbbbcc")
        yield client


@pytest.mark.parametrize("number", range(3))
@asynchronous
async def test_a_block_without_a_key_is_damage_and_no_bytes_are_left_out(
    tmp_path: Path, number: int
) -> None:
    async with stored(tmp_path) as client:
        info = await client.files.stat("d/x")
        async with client.files.open("d/x") as before:
            await client.kv.delete(block_key(info.id, number))
            with pytest.raises(FileDamaged, match=f"'d/x': the key of block {number} is missing"):
                await client.files.open("d/x")
            with pytest.raises(FileDamaged):
                await before.refresh()
            assert await before.read() == b"aaaabbbbcc"
        async with client.files.open("d/y") as other:
            assert await other.read() == b"aaaabbbbcc"


@asynchronous
async def test_a_record_that_cannot_be_decoded_is_damage_of_its_path(tmp_path: Path) -> None:
    async with stored(tmp_path) as client:
        info = await client.files.stat("d/x")
        await client.kv.put(record_key(info.id), NOT_DECODABLE)
        for call in (client.files.stat, client.files.append, client.files.open):
            with pytest.raises(FileDamaged, match=r"'d/x': the record .* cannot be decoded"):
                await call("d/x")
        with pytest.raises(FileDamaged, match="'d/x'"):
            [info async for info in client.files.list("d")]
        assert (await client.files.stat("d/y")).size_bytes == 10
        await client.files.delete("d", recursive=True)
        with pytest.raises(FileNotFound):
            await client.files.stat("d/y")


@asynchronous
async def test_a_block_that_cannot_be_decoded_is_damage_of_its_path(tmp_path: Path) -> None:
    async with stored(tmp_path) as client:
        info = await client.files.stat("d/x")
        await client.kv.put(block_key(info.id, 1), NOT_DECODABLE)
        with pytest.raises(FileDamaged, match=r"'d/x': a block .* cannot be decoded"):
            await client.files.open("d/x")


@pytest.mark.parametrize("is_damaged", [True, False])
@asynchronous
async def test_a_client_is_closed_completely_although_a_part_of_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    leases: Sequence[LeaseInfo] | None = None

    async def close_engine() -> None:
        nonlocal leases
        leases = await client.leases()

    async with stored(tmp_path) as client:
        other = leasehold.Client(client.engine)
        file = await other.files.create("z")
        await file.write(b"not flushed")
        lock = await other.lock("lock").acquire()
        with monkeypatch.context() as patched:
            patched.setattr(client.engine, "close", close_engine)
            if is_damaged:
                await client.kv.put(record_key(file.id), NOT_DECODABLE)
                await other.close()
            else:
                patched.setattr(other.registry, "close", fail)
                with pytest.raises(ZeroDivisionError):
                    await other.close()
        assert leases is not None
        assert not leases, "they end before the engine is closed"
        with pytest.raises(LockLost, match="the client was closed"):
            lock.check()
