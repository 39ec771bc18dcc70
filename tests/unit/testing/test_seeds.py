"""Seeds come from the test, or from the environment."""

import pytest

from leasehold.testing import seeds


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_SEED", raising=False)
    monkeypatch.delenv("LEASEHOLD_SEEDS", raising=False)


def test_seeds_are_fixed() -> None:
    assert seeds(4) == [0, 1, 2, 3]


def test_one_seed_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_SEEDS", "9")
    monkeypatch.setenv("LEASEHOLD_SEED", "7")
    assert seeds(4) == [7]


def test_more_seeds_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_SEEDS", "500")
    assert seeds(4) == list(range(500))


def test_bad_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_SEED", "seven")
    with pytest.raises(ValueError, match="LEASEHOLD_SEED must be a whole number, not 'seven'"):
        seeds(4)


def test_no_seeds_would_be_no_test() -> None:
    with pytest.raises(ValueError, match="at least one"):
        seeds(0)
