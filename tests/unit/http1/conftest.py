"""Fixtures for tests of connections."""

from tests.support.connection_fixtures import _same_second, peer, raw

__all__ = ["_same_second", "peer", "raw"]
