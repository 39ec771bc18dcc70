"""The clients that the tests of connections share."""

import pytest

from leasehold.grpc import http_handlers
from tests.support.h2_peer import Peer, RawPeer

EPOCH = b"Thu, 01 Jan 1970 00:00:00 GMT"


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def raw() -> RawPeer:
    return RawPeer()


@pytest.fixture(autouse=True)
def _same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return all answers the same `Date`, so that they can be compared."""
    monkeypatch.setattr(http_handlers, "_date", lambda second: EPOCH)
