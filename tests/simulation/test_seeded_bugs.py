"""Each seeded bug, switched on, is caught; the same run without it passes (`test_leases`)."""

import pytest

from leasehold.testing import SimulationError
from tests.simulation.oracle import Violation
from tests.simulation.seeded_bugs import SEEDED_BUGS, SeededBug

SEEDS_TO_TRY = 6


@pytest.mark.parametrize("bug", SEEDED_BUGS, ids=lambda bug: bug.name)
def test_seeded_bug_is_caught(bug: SeededBug) -> None:
    for seed in range(SEEDS_TO_TRY):
        try:
            with bug.make():
                bug.scenario(seed)
        except (Violation, SimulationError) as caught:
            notes = "".join(getattr(caught, "__notes__", ()))
            assert f"LEASEHOLD_SEED={seed}" in notes, "the failing seed is not printed"
            return
    pytest.fail(f"{bug.name}: survived {SEEDS_TO_TRY} runs of {bug.scenario.__name__}")
