"""Structured details of errors: what is sent, read and ignored, and how large it is."""

import base64
import json
from typing import Final

import pytest
from google.protobuf.any_pb2 import Any as PublicAny
from hypothesis import example, given
from hypothesis import strategies as st

from leasehold import ANY, FOREVER
from leasehold.errors import (
    Closed,
    Compacted,
    DuplicateKey,
    EmptyKey,
    EndReason,
    FutureRevision,
    LeaseDenied,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    NoSpace,
    NoSuchObject,
    PermissionDenied,
    ShardLost,
    Status,
    TooBusy,
    TooLarge,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
    UnsupportedOperation,
)
from leasehold.grpc import error_details
from leasehold.grpc.error_details import (
    BUSY,
    MAX_FIELD_BYTES,
    MAX_MESSAGE_BYTES,
    REFUSED,
    as_ours,
    decode_details,
    detail_of,
    encode_details,
)
from leasehold.grpc.protocol import ErrorDetail, RpcError
from leasehold.server.gateway.http_answers import error_document, error_line
from leasehold.wire import status_pb2 as pb

MAX_TRAILER_BYTES: Final = 4096
"""Half of what `grpcio` accepts as trailers by default."""

NUMBERS: Final = st.integers(-(2**63), 2**63 - 1)
KEYS: Final = st.binary(max_size=MAX_FIELD_BYTES)
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_FIELD_BYTES // 4)
REQUESTED: Final = st.none() | st.sampled_from([ANY, FOREVER]) | st.floats(allow_nan=False)

ERRORS: Final[dict[str, st.SearchStrategy[LeaseholdError]]] = {
    "UNKNOWN_LEASE": st.builds(UnknownLease, NUMBERS, st.sampled_from(EndReason)),
    "LEASE_EXISTS": st.builds(LeaseExists, NUMBERS),
    "LEASE_FULL": st.builds(LeaseFull, NUMBERS, NUMBERS, NUMBERS),
    "LEASE_DENIED": st.builds(LeaseDenied, TEXTS, lease=st.none() | NUMBERS, requested=REQUESTED),
    "UNKNOWN_KEY": st.builds(UnknownKey, KEYS),
    "EMPTY_KEY": st.builds(EmptyKey),
    "DUPLICATE_KEY": st.builds(DuplicateKey, KEYS),
    "TOO_MANY_OPERATIONS": st.builds(TooManyOperations, NUMBERS, NUMBERS),
    "TOO_LARGE": st.builds(TooLarge, TEXTS.filter(bool)),
    "COMPACTED": st.builds(Compacted, NUMBERS, NUMBERS),
    "FUTURE_REVISION": st.builds(FutureRevision, NUMBERS, NUMBERS),
    "NO_SPACE": st.builds(NoSpace, NUMBERS, NUMBERS),
    "NO_SUCH_OBJECT": st.builds(NoSuchObject, TEXTS, TEXTS),
    "SHARD_LOST": st.builds(ShardLost, NUMBERS, TEXTS),
    "TOO_BUSY": st.builds(TooBusy, TEXTS.filter(bool)),
    "PERMISSION_DENIED": st.builds(PermissionDenied, TEXTS.filter(bool)),
    "UNSUPPORTED_OPERATION": st.builds(UnsupportedOperation, TEXTS.filter(bool)),
}
"""A strategy for each error of the table."""


def _sent(error: LeaseholdError, message: str = "a text") -> RpcError:
    return RpcError(error.status, message, detail=detail_of(error, is_whole_call=True))


def _received(sent: RpcError) -> RpcError:
    encoded = encode_details(sent)
    assert encoded is not None
    return RpcError(sent.status, sent.message, detail=decode_details(encoded))


def test_every_error_of_the_table_is_tested() -> None:
    assert ERRORS.keys() == {row.reason for row in error_details._TABLE}


@given(st.one_of(*ERRORS.values()), st.booleans())
def test_every_error_survives_with_all_its_fields(
    error: LeaseholdError, not_executed: bool
) -> None:
    error.not_executed = not_executed
    received = as_ours(_received(_sent(error)))
    assert isinstance(received, LeaseholdError)
    assert type(received) is type(error)
    assert received.args == error.args
    assert vars(received) == vars(error)
    assert str(received) == str(error)


def test_the_bytes_are_those_of_the_public_messages() -> None:
    encoded = encode_details(_sent(EmptyKey(), "etcdserver: key is not provided"))
    assert encoded is not None
    info = b"\n\x09EMPTY_KEY\x12\x0cleasehold.v1\x1a\x14\n\x0cnot_executed\x12\x04true"
    url = b"type.googleapis.com/google.rpc.ErrorInfo"
    detail = b"\n%c%b\x12%c%b" % (len(url), url, len(info), info)
    text = b"etcdserver: key is not provided"
    status = b"\x08\x03\x12%c%b\x1a%c%b" % (len(text), text, len(detail), detail)
    assert base64.b64decode(encoded + b"=" * (-len(encoded) % 4)) == status
    assert PublicAny.FromString(detail).TypeName() == "google.rpc.ErrorInfo"


@pytest.mark.parametrize("error", [Closed("closed"), LeaseholdError("any")])
def test_an_error_without_a_row_has_no_details(error: LeaseholdError) -> None:
    assert detail_of(error, is_whole_call=True) is None
    assert encode_details(RpcError(Status.UNAVAILABLE, "closed")) is None


@given(st.binary() | st.text().map(str.encode))
@example(b"%%%")
@example(base64.b64encode(b"\xff\xff\xff"))
def test_a_trailer_of_anything_is_ignored(value: bytes) -> None:
    assert decode_details(value) is None


def test_details_of_others_are_ignored() -> None:
    info = pb.ErrorInfo(reason="NO_SPACE", domain="example.com").SerializeToString()
    others = [("google.rpc.ErrorInfo", info), ("google.rpc.RetryInfo", b"\n\x02\x08\x05")]
    status = pb.Status(
        code=9,
        message="no",
        details=[pb.Any(type_url=f"type.googleapis.com/{name}", value=it) for name, it in others],
    )
    assert decode_details(base64.b64encode(status.SerializeToString())) is None


def test_an_unknown_field_is_ignored_and_an_absent_one_has_a_default() -> None:
    detail = ErrorDetail("NO_SPACE", {"quota_bytes": "5", "colour": "red"})
    error = as_ours(RpcError(Status.RESOURCE_EXHAUSTED, "full", detail=detail))
    assert (type(error), error.args) == (NoSpace, (0, 5))


def test_an_absent_field_is_taken_from_the_request() -> None:
    detail = ErrorDetail("COMPACTED", {"revision": "7"})
    error = as_ours(RpcError(Status.OUT_OF_RANGE, "x", detail=detail), 0, {"asked_for": 3})
    assert (type(error), error.args) == (Compacted, (3, 7))


@pytest.mark.parametrize("text", ["", "one", "9" * 10_000, "1.5"])
def test_a_field_that_cannot_be_read_counts_as_absent(text: str) -> None:
    detail = ErrorDetail("LEASE_EXISTS", {"lease": text})
    error = as_ours(RpcError(Status.FAILED_PRECONDITION, "x", detail=detail))
    assert (type(error), error.args) == (LeaseExists, (0,))


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("false", False), ("maybe", False)])
def test_of_an_unknown_reason_only_the_certainty_is_used(text: str, expected: bool) -> None:
    detail = ErrorDetail("OF_A_LATER_VERSION", {"not_executed": text})
    error = as_ours(RpcError(Status.UNAVAILABLE, "later", detail=detail))
    assert isinstance(error, LeaseholdError)
    assert error.not_executed is expected
    assert str(error) == "UNAVAILABLE: later"


@pytest.mark.parametrize("detail", [REFUSED, BUSY])
def test_a_refusal_was_not_executed_whatever_its_text(detail: ErrorDetail) -> None:
    error = as_ours(RpcError(Status.RESOURCE_EXHAUSTED, "in other words", detail=detail))
    assert isinstance(error, TooBusy)
    assert error.not_executed
    assert str(error) == "in other words"


@pytest.mark.parametrize(
    "error",
    [
        UnknownKey(b"k" * 1_000_000),
        DuplicateKey(b"\xff" * 1_000_000),
        TooLarge("\N{SNOWMAN}" * 100_000),
        LeaseDenied("\ud800" * 100_000, lease=-(2**63), requested=1e300),
        UnknownLease("x" * 100_000),
    ],
)
def test_the_trailers_are_bounded(error: LeaseholdError) -> None:
    encoded = encode_details(_sent(error, "m" * MAX_MESSAGE_BYTES))
    assert encoded is not None
    assert len(encoded) < MAX_TRAILER_BYTES


def test_a_long_text_leaves_no_room_for_details() -> None:
    assert encode_details(_sent(EmptyKey(), "m" * (MAX_MESSAGE_BYTES + 1))) is None


def test_the_gateway_writes_them_as_others_do() -> None:
    expected = [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "UNKNOWN_KEY",
            "domain": "leasehold.v1",
            "metadata": {"not_executed": "true", "key": base64.b64encode(b'"\\\xff').decode()},
        }
    ]
    sent = _sent(UnknownKey(b'"\\\xff'), "etcdserver: key not found")
    assert json.loads(error_document(sent))["details"] == expected
    assert json.loads(error_line(sent))["error"]["details"] == expected
    assert b"details" not in error_document(RpcError(Status.INTERNAL, "internal error"))
