"""Lease ids as text: one form in messages, logs and reprs."""

import re
from pathlib import Path

import pytest

import leasehold
from leasehold.basics.lease_ids import shown_lease
from leasehold.engine.values import KeyValue
from leasehold.errors import (
    EndReason,
    LeaseBatchError,
    LeaseDenied,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    LeaseLost,
    SessionExpired,
    UnknownLease,
)
from leasehold.wire import kv_pb2 as pb

SOURCE = Path(leasehold.__file__).parent
UNFORMATTED = re.compile(
    r"""
    \blease\ (?:
        \{(?!(?:self\._)?shown|argument_types\.shown_id|name\b|_LEASE\})  # in an f-string
        | %[rdx]                                             # in a log message or by `%`
        | %s.*",\ (?!shown)                                  # in a log message on one line
    )
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize(
    ("lease", "text"),
    [
        (0x694D81F5A2C0CA0D, "694d81f5a2c0ca0d"),
        (7, "0000000000000007"),
        (-7, "-000000000000007"),
        (-(2**63), "-8000000000000000"),
        ("cookie", "'cookie'"),
        (True, "True"),
    ],
)
def test_an_id_is_shown_as_etcdctl_shows_it(lease: object, text: str) -> None:
    assert shown_lease(lease) == text


LEASE = 31249
ERRORS = [
    UnknownLease(LEASE),
    UnknownLease(LEASE, EndReason.EXPIRED),
    LeaseExists(LEASE),
    LeaseLost(LEASE, "why"),
    SessionExpired(LEASE, "why"),
    LeaseFull(LEASE, 1, 1),
    LeaseDenied("why", lease=LEASE),
    LeaseBatchError({LEASE: Exception("why")}),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_about_a_lease_shows_its_id_in_that_form(error: LeaseholdError) -> None:
    assert shown_lease(LEASE) in str(error)
    assert str(LEASE) not in str(error)


def test_the_repr_of_a_key_shows_its_lease_in_that_form() -> None:
    encoded = pb.KeyValue(key=b"key", value=b"value", lease=LEASE).SerializeToString()
    pair = KeyValue((encoded, 1, 1, 1, LEASE, b"key"))
    assert f"lease {shown_lease(LEASE)}" in repr(pair)


def test_no_message_in_the_source_formats_a_lease_in_another_way() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in path.read_text().splitlines()
        if UNFORMATTED.search(line)
    ]
    assert not found
