"""Settings of a server, as values: what is refused, whoever makes them."""

from typing import Any

import pytest

from leasehold.basics.addresses import is_local, parse_address
from leasehold.server.settings import Settings


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"listen": ()}, "listen must have at least one address"),
        ({"quota_bytes": 1}, "quota_bytes must be from 1,048,576 to"),
        ({"min_ttl_s": 0}, "min_ttl_s must be from 1 to 9,000,000,000, got 0"),
        ({"keys_per_lease": 0}, "keys_per_lease must be from 1 to 1,000,000, got 0"),
        ({"keys_per_lease": 1_000_001}, "got 1,000,001"),
    ],
)
def test_a_wrong_value_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(**wrong)


@pytest.mark.parametrize(
    ("address", "is_so"),
    [
        ("127.0.0.1:1", True),
        ("127.255.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.org:1", False),
        ("[::ffff:127.0.0.1]:1", False),
    ],
)
def test_what_only_this_machine_can_reach(address: str, is_so: bool) -> None:
    assert is_local(parse_address(address)) is is_so
