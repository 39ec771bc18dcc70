"""The clients that the tests of connections share."""

import pytest

from leasehold.rpc import pages
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
    """Give all answers the same `Date`, so that they can be compared."""
    monkeypatch.setattr(pages, "_date", lambda second: EPOCH)
