"""`leasehold files append`: waiting for a recovery that the command itself has begun."""

from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.cli.files_copy import opened_to_append
from leasehold.errors import RecoveryInProgress
from tests.support.files_stage import FilesStage, open_file, play, silent


def test_a_recovery_that_takes_long_is_finished_by_the_command_that_has_begun_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        stamp = stage.record((await open_file(a)).id).stamp
        await silent(a)
        stage.stores.delay_s = 15.0  # of each step: an open waits for 10 s
        client: Any = SimpleNamespace(files=b.files)
        async with await opened_to_append(client, "x") as file:
            stage.stores.delay_s = 0.0
            await file.write(b" and more")
        assert stage.record(file.id).stamp == stamp + 2, "one recovery, and the next writer"
        assert await b.read("x") == b"flushed and more"
        assert capsys.readouterr().err == "leasehold: waiting until 'x' is recovered\n"

    play(scene)


def test_a_recovery_that_has_failed_is_not_waited_for() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        await silent(a)
        for url in ("/1", "/2", "/3"):
            stage.stores.fail(url)
        assert not await b.files.recover("x")
        client: Any = SimpleNamespace(files=b.files)
        with pytest.raises(RecoveryInProgress):
            await opened_to_append(client, "x")
        for url in ("/1", "/2", "/3"):
            stage.stores.heal(url)
        assert await b.files.recover("x")

    play(scene)
