"""Hypothesis profiles: `ci` by default; `HYPOTHESIS_PROFILE=deep` searches longer, at random."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from leasehold.grpc import http_handlers
from tests.property.support import DEEP, PROFILE

EPOCH = b"Thu, 01 Jan 1970 00:00:00 GMT"

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(DEEP, settings.get_profile("ci"), derandomize=False)
settings.load_profile(os.environ.get(PROFILE, "ci"))


@pytest.fixture(autouse=True)
def _keep_no_log() -> Iterator[None]:
    """Let no captured log keep things alive: machines check that ended leases leave nothing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def _same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all answers the same `Date`, so that they can be compared."""
    monkeypatch.setattr(http_handlers, "_date", lambda second: EPOCH)
