"""The gateway's JSON: what is written is read again, as protobuf's own mapping reads it, too."""

import base64
import json
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast
from unittest import mock

import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from leasehold.basics.rope import Rope
from leasehold.server.gateway import json_reader as ours
from leasehold.server.gateway import json_writer
from leasehold.server.gateway.gateway_routes import find_routes
from leasehold.server.gateway.json_reader import Documents, Unreadable, fill
from leasehold.server.gateway.json_writer import MAX_HEAD_BYTES, quoted, written
from leasehold.wire import kv_pb2, leases_pb2, rpc_pb2
from leasehold.wire.pool import POOL

_int64 = st.integers(-(1 << 63), (1 << 63) - 1)
_data = st.binary(max_size=20)
_pairs = st.builds(
    kv_pb2.KeyValue,
    key=_data,
    create_revision=_int64,
    mod_revision=_int64,
    version=_int64,
    value=_data,
    lease=_int64,
)
_ranges = st.builds(
    rpc_pb2.RangeResponse,
    header=st.builds(
        rpc_pb2.ResponseHeader, cluster_id=st.integers(0, (1 << 64) - 1), revision=_int64
    ),
    kvs=st.lists(_pairs, max_size=5),
    more=st.booleans(),
    count=_int64,
)
_requests = st.builds(
    rpc_pb2.RangeRequest,
    key=_data,
    limit=_int64,
    sort_order=st.integers(0, 2),
    sort_target=st.integers(0, 4),
    serializable=st.booleans(),
)
_ops: st.SearchStrategy[rpc_pb2.RequestOp] = st.deferred(
    lambda: st.one_of(
        st.builds(rpc_pb2.RequestOp),
        st.builds(rpc_pb2.RequestOp, request_range=_requests),
        st.builds(rpc_pb2.RequestOp, request_txn=_txns),
    )
)
_txns: st.SearchStrategy[rpc_pb2.TxnRequest] = st.builds(
    rpc_pb2.TxnRequest,
    compare=st.lists(
        st.builds(
            rpc_pb2.Compare, result=st.integers(0, 3), target=st.just(3), key=_data, value=_data
        ),
        max_size=3,
    ),
    success=st.lists(_ops, max_size=3),
)
_events = st.builds(
    rpc_pb2.WatchResponse,
    watch_id=_int64,
    cancel_reason=st.text(max_size=10).filter(lambda text: text.isprintable()),
    events=st.lists(
        st.builds(kv_pb2.Event, type=st.integers(0, 1), kv=_pairs, prev_kv=_pairs), max_size=4
    ),
)
_messages = st.one_of(_ranges, _txns, _events)
_done: st.SearchStrategy[rpc_pb2.TxnResponse] = st.builds(
    rpc_pb2.TxnResponse,
    succeeded=st.booleans(),
    responses=st.lists(
        st.deferred(
            lambda: st.one_of(
                st.builds(rpc_pb2.ResponseOp, response_range=_ranges),
                st.builds(rpc_pb2.ResponseOp, response_txn=_done),
            )
        ),
        max_size=3,
    ),
)
_renewed = st.builds(
    leases_pb2.RenewAllRequest, ids=st.lists(_int64, max_size=40), grantor=st.text(max_size=60)
)
_long_messages = st.one_of(_messages, _done, _renewed).filter(lambda message: message.ByteSize())
"""Of every kind: nested, with long values, with long texts, and with packed numbers."""


def _read(kind: type[Message], text: str) -> Message:
    message = kind()
    fill(message, Documents(text.encode()).read())
    return message


@given(_messages)
def test_what_is_written_is_read_again(message: Message) -> None:
    assert _read(type(message), written(message)) == message


@given(_messages)
def test_protobufs_own_mapping_says_the_same(message: Message) -> None:
    theirs = json_format.MessageToDict(message, preserving_proto_field_name=True)
    assert json.loads(written(message)) == theirs
    in_camel_case = json.dumps(json_format.MessageToDict(message))
    assert _read(type(message), in_camel_case) == message


@given(_long_messages, st.integers(1, 50), st.integers(0, 100), st.data())
def test_in_pieces_it_is_the_same_and_no_piece_is_long(
    message: Message, field_bytes: int, more_bytes: int, data: st.DataObject
) -> None:
    raw = message.SerializeToString()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    ropes = [raw[start:end] for start, end in pairwise([0, *cuts, len(raw)])]
    sizes: dict[str, Any] = {
        "LONG_FIELD_BYTES": field_bytes,
        "PART_BYTES": field_bytes + MAX_HEAD_BYTES + more_bytes,
        "_BASE64_STEP_BYTES": 30,
        "_CHARACTERS_PER_STEP": 10,
    }
    with mock.patch.multiple(json_writer, **sizes):
        texts = list(json_writer.pieces(type(message), Rope(ropes), len(raw)))
    assert "".join(texts) == written(message)
    assert max(map(len, texts)) < 30 * field_bytes + 100


@given(_long_messages, st.integers(0, 1000), st.integers(0, 255))
def test_what_is_no_message_is_refused_or_written(message: Message, at: int, byte: int) -> None:
    data = bytearray(message.SerializeToString())
    data[at % len(data) :] = bytes([byte]) if at % 2 else b""
    sizes = mock.patch.multiple(json_writer, LONG_FIELD_BYTES=10, PART_BYTES=50)
    with sizes, suppress(ValueError, DecodeError):
        "".join(json_writer.pieces(type(message), Rope([bytes(data)]), len(data)))


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                [
                    "compare",
                    "success",
                    "key",
                    "target",
                    "version",
                    "requestPut",
                    "request_range",
                    "x",
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)


_octets_of_json = st.one_of(
    st.binary(max_size=60), st.text('{}[]":,\\u012tfne+-. \n', max_size=30).map(str.encode)
)
_nearly_base64 = st.one_of(
    st.binary(max_size=30).map(base64.b64encode),
    st.text("Zm9v=\n+/_! ", max_size=12).map(str.encode),
)


@given(_json)
def test_any_document_is_read_or_refused(document: Any) -> None:
    with suppress(Unreadable):
        assert _read(rpc_pb2.TxnRequest, json.dumps(document)).SerializeToString() is not None


@given(_octets_of_json)
def test_any_octets_are_json_for_us_if_they_are_for_python(body: bytes) -> None:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    documents = Documents(body)
    if documents.is_at_end:
        return
    text = body.decode(errors="replace").lstrip(" \t\n\r")
    try:
        expected, _ = json.JSONDecoder(parse_constant=no_constant, parse_float=str).raw_decode(text)
    except ValueError:
        with pytest.raises(Unreadable, match=r"invalid character|unexpected EOF"):
            documents.read()
    else:
        assert documents.read() == expected


@given(_nearly_base64)
def test_base64_is_read_or_refused_with_a_place_in_it(encoded: bytes) -> None:
    try:
        expected = base64.b64decode(encoded.replace(b"\n", b""), validate=True)
    except ValueError:
        with pytest.raises(Unreadable) as refused:
            ours.decoded(encoded.decode())
        assert 0 <= int(str(refused.value).rpartition(" ")[2]) <= len(encoded)
    else:
        assert ours.decoded(encoded.decode()) == expected


@given(st.text(st.characters()))
def test_strings_are_json(text: str) -> None:
    shown = quoted(text)
    assert json.loads(shown) == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert not set(shown) & set("<>&\u2028\u2029")


def test_every_field_of_every_message_can_be_mapped() -> None:
    seen = set()

    def check(kind: Any) -> None:
        descriptor = kind.DESCRIPTOR
        if descriptor.full_name in seen:
            return
        seen.add(descriptor.full_name)
        numbers = [field.number for field in descriptor.fields]
        assert numbers == sorted(numbers), "else the order of JSON is not the order of numbers"
        for field in descriptor.fields:
            assert field.cpp_type not in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT)
            if field.message_type is not None:
                assert not field.message_type.GetOptions().map_entry
                check(GetMessageClass(cast(Any, field.message_type)))
        message = kind()
        fill(message, {})
        assert written(message) == "{}"

    for route in find_routes({}, POOL).values():
        check(route.request)
        check(route.answer)
    assert len(seen) > 80
