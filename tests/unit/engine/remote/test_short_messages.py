"""The calls that are made most: the bytes are protobuf's, and pairs are what they are elsewhere."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.engine.remote import etcd_messages
from leasehold.engine.remote.etcd_messages import OnlyPair, get_message, put_message
from leasehold.keyspace.operations import Put, Range
from leasehold.wire import kv_pb2
from leasehold.wire import rpc_pb2 as pb

data = st.one_of(
    st.binary(min_size=1, max_size=300),
    st.builds(lambda size: b"\x00" * size, st.sampled_from([127, 128, 16383, 16384, 1 << 20])),
)
lease = st.one_of(st.none(), st.just(0), st.integers(-(1 << 63), (1 << 63) - 1))
every_example = settings(deadline=None, derandomize=True, max_examples=200)

PAIR = kv_pb2.KeyValue(
    key=b"k", value=b"v" * 200, create_revision=3, mod_revision=500, version=7, lease=1 << 62
)


@every_example
@given(data)
def test_a_get_is_what_protobuf_makes_of_it(key: bytes) -> None:
    assert get_message(key) == etcd_messages.range_request(Range(key)).SerializeToString()


@every_example
@given(data, st.one_of(st.none(), st.just(b""), data), lease)
def test_a_put_is_what_protobuf_makes_of_it(
    key: bytes, value: bytes | None, lease: int | None
) -> None:
    expected = etcd_messages.put_request(Put(key, value, lease)).SerializeToString()
    assert put_message(key, value, lease) == expected


@pytest.mark.parametrize("pair", [PAIR, kv_pb2.KeyValue(key=b"k")])
def test_the_only_pair_of_an_answer_is_like_any_other(pair: kv_pb2.KeyValue) -> None:
    only, other = OnlyPair(pair), etcd_messages.pair_of(pair)
    for name in (
        *("key", "value", "name", "text"),
        *("create_revision", "mod_revision", "version", "lease"),
    ):
        assert getattr(only, name) == getattr(other, name)
    assert only == other
    assert other == only
    assert hash(OnlyPair(pair)) == hash(other)
    assert repr(OnlyPair(pair)) == repr(other)
    for again in (pickle.loads(pickle.dumps(OnlyPair(pair))), copy.deepcopy(OnlyPair(pair))):  # noqa: S301
        assert again == other
    with pytest.raises(AttributeError, match="lesae"):
        _ = only.lesae


def test_ranges_of_none_one_and_many_pairs_are_alike() -> None:
    for count in (0, 1, 2, 20):
        answer = pb.RangeResponse(kvs=[PAIR] * count, count=count)
        found = etcd_messages.range_result(answer)
        assert len(found.pairs) == found.total == count
        assert found.pairs == [etcd_messages.pair_of(PAIR)] * count
        assert list(found.pairs[1:]) == [etcd_messages.pair_of(PAIR)] * (count - 1)
