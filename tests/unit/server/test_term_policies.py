"""Policies of a server: what a wish for a term comes to, and which wishes are refused."""

import pytest

from leasehold.leases.policies import TermPolicy

POLICY = TermPolicy(minimum_ms=100, maximum_ms=5_000, default_ms=700)


@pytest.mark.parametrize(
    ("wanted_ms", "term_ms"),
    [(1, 100), (100, 100), (101, 101), (5_001, 5_000), (2**63 - 1, 5_000), (-1, 700), (-2, 5_000)],
)
def test_a_wish_is_brought_within(wanted_ms: int, term_ms: int) -> None:
    assert POLICY.term_ms(wanted_ms) == term_ms


@pytest.mark.parametrize("wanted_ms", [0, -3, -(2**63)])
def test_a_refusal_names_what_would_be_taken(wanted_ms: int) -> None:
    with pytest.raises(ValueError, match="ttl_ms must be at least 1") as caught:
        POLICY.term_ms(wanted_ms)
    if wanted_ms:
        assert f"-1 (any) or -2 (no end), got {wanted_ms}" in str(caught.value)
