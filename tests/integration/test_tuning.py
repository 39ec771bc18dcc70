"""The process of a server: what a start made is left alone, and what comes later is collected."""

import subprocess
import sys

import pytest

TUNE = """
import gc
from leasehold.server.app import GC_THRESHOLDS, tune_interpreter
{before}
made = [[] for _ in range(1000)]
tune_interpreter()
assert gc.isenabled() and gc.get_threshold() == GC_THRESHOLDS
assert gc.get_freeze_count() > 1000
"""


@pytest.mark.parametrize("before", ["gc.disable()", ""])
def test_the_collector_is_back_once_a_server_has_started(before: str) -> None:
    subprocess.run([sys.executable, "-c", TUNE.format(before=before)], check=True, timeout=60)  # noqa: S603
