"""The clients that the tests of connections share."""

import pytest

from tests.support.h2_peer import Peer, RawPeer


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def raw() -> RawPeer:
    return RawPeer()
