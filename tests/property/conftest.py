"""For all property tests: nothing is logged, and answers have the same date."""

import logging
from collections.abc import Iterator

import pytest

from leasehold.grpc import http_handlers

EPOCH = b"Thu, 01 Jan 1970 00:00:00 GMT"


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
