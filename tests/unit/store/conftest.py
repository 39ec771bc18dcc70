"""Engines for tests: in memory and in a directory."""

from tests.support.engine_fixtures import kept, place

__all__ = ["kept", "place"]
