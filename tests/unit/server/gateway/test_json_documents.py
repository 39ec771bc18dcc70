"""Bodies that would take long to read are refused before they are read."""

import json

import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.server.gateway.http_answers import MAX_TEXT, error_document, error_line
from leasehold.server.gateway.json_reader import (
    MAX_MESSAGES,
    MAX_SHOWN,
    MAX_VALUES,
    Documents,
    Unreadable,
    fill,
)
from leasehold.wire.rpc_pb2 import PutRequest, RangeRequest, TxnRequest
from tests.support.cost import cost

MAX_COST = 40
"""Generous: each of these costs less than 2."""


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * MAX_VALUES + b"1]",
        b'"' + b"\\u0041" * (MAX_VALUES + 1) + b'"',
        b"{" * 200_000,
    ],
    ids=["numbers", "escapes", "brackets"],
)
def test_a_body_of_very_many_values_is_refused(body: bytes) -> None:
    with pytest.raises(Unreadable, match=f"at most {MAX_VALUES} values"):
        Documents(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":[' + b"1," * (MAX_VALUES - 10) + b"1]}",
        b'{"x":[' + b'{"a":1},' * (MAX_VALUES // 3 - 10) + b"1]}",
        b'{"key":[' + b"1," * (MAX_VALUES - 10) + b"1]}",
        b'{"x":[' + b"1," * (MAX_VALUES - 10) + b"1 1]}",
        b'{"key":"' + b"A" * 3_999_999 + b'"}',
        b'{"value":"' + b"AAAA" * 500_000 + b'"}',
        b'{"value":"' + b"AAA=" * 500_000 + b'"}',
        b'{"lease":"' + b" " * 3_000_000 + b'x"}',
        b'{"lease":' + b"1" * 3_000_000 + b"}",
        b"[" * (MAX_VALUES - 10),
        b'{"x":[' + b",".join([b"9" * 4299] * 970) + b"]}",
        b'{"key":"" ' + b" " * 4_000_000 + b"x}",
        b'{"key":"' + b"\xff" * 4_000_000 + b'"}',
    ],
    ids=range(13),
)
def test_the_worst_bodies_take_no_time_to_speak_of(body: bytes) -> None:
    def read() -> None:
        try:
            fill(PutRequest(), Documents(body).read())
        except Unreadable as error:
            assert len(str(error)) < 2 * MAX_SHOWN  # noqa: PT017

    assert cost(read) < MAX_COST


def test_what_is_wrong_is_not_repeated_at_length() -> None:
    body = b'{"sort_order":"' + b"<" * 4_000_000 + b'"}'
    with pytest.raises(Unreadable, match="unknown value") as refused:
        fill(RangeRequest(), Documents(body).read())
    assert len(str(refused.value)) < 2 * MAX_SHOWN
    long = RpcError(Status.UNKNOWN, "<" * 1_000_000)
    assert len(error_document(long)) < 20 * MAX_TEXT
    assert len(error_line(long)) < 20 * MAX_TEXT


def test_very_many_objects_are_refused() -> None:
    body = b'{"success":[' + b",".join([b"{}"] * (MAX_MESSAGES + 1)) + b"]}"
    with pytest.raises(Unreadable, match=f"at most {MAX_MESSAGES} objects, got"):
        fill(TxnRequest(), Documents(body).read())


def test_a_long_integer_is_refused_as_a_number() -> None:
    with pytest.raises(Unreadable, match="cannot unmarshal number 9999999999999999999999 into"):
        fill(PutRequest(), Documents(b'{"lease":9999999999999999999999}').read())


def test_documents_come_one_after_the_other() -> None:
    documents = Documents(b' {"a":1}\n[2]"x" null')
    found = []
    while not documents.is_at_end:
        found.append(documents.read())
    assert found == [{"a": 1}, [2], "x", None]


def test_a_number_keeps_how_it_was_written() -> None:
    error_document = Documents(json.dumps({"a": 1.50}).replace("1.5", "1.50").encode()).read()
    assert error_document["a"] == "1.50"
