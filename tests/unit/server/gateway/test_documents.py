"""Bodies that would take long to read are refused before they are read."""

import json
from time import process_time

import pytest

from leasehold.server.gateway.documents import MAX_VALUES, Documents, Unreadable
from leasehold.server.gateway.reading import fill
from leasehold.wire.rpc_pb2 import PutRequest

MAX_STALL_S = 0.5
"""Generous: on an idle machine each of these takes less than 50 ms."""


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
    ],
    ids=range(10),
)
def test_the_worst_bodies_take_no_time_to_speak_of(body: bytes) -> None:
    began = process_time()
    try:
        fill(PutRequest(), Documents(body).read())
    except Unreadable as error:
        assert len(str(error)) < 200  # noqa: PT017
    assert process_time() - began < MAX_STALL_S


def test_documents_come_one_after_the_other() -> None:
    documents = Documents(b' {"a":1}\n[2]"x" null')
    found = []
    while not documents.is_at_end:
        found.append(documents.read())
    assert found == [{"a": 1}, [2], "x", None]


def test_a_number_keeps_how_it_was_written() -> None:
    document = Documents(json.dumps({"a": 1.50}).replace("1.5", "1.50").encode()).read()
    assert document["a"] == "1.50"
