"""The generated messages: as committed, beside other libraries' copies, and of the right shape."""

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message import Message

from leasehold.wire import journal_pb2, kv_pb2, rpc_pb2
from leasehold.wire.codec import field, key_value
from leasehold.wire.pool import POOL
from tools import generate_wire


def test_what_is_committed_is_what_the_script_makes() -> None:
    committed = {path.name: path.read_text() for path in generate_wire.WIRE.glob("*_pb2.py*")}
    made_with = committed["kv_pb2.py"].split(generate_wire.MADE_BY)[1].split()[0]
    if made_with != generate_wire.TOOLS_VERSION:
        pytest.skip(f"made with grpcio-tools {made_with}, here is {generate_wire.TOOLS_VERSION}")
    assert generate_wire.generate() == committed


@pytest.mark.parametrize("module", [kv_pb2, rpc_pb2, journal_pb2])
def test_nothing_of_ours_is_in_the_default_pool(module: object) -> None:
    names = [kind.full_name for kind in module.DESCRIPTOR.message_types_by_name.values()]  # type: ignore[attr-defined]
    assert names
    for name in names:
        assert POOL.FindMessageTypeByName(name).full_name == name
        with pytest.raises(KeyError):
            descriptor_pool.Default().FindMessageTypeByName(name)


def test_the_services_have_etcds_methods() -> None:
    services = rpc_pb2.DESCRIPTOR.services_by_name
    methods = {name: [method.name for method in kind.methods] for name, kind in services.items()}
    assert methods == {
        "KV": ["Range", "Put", "DeleteRange", "Txn", "Compact"],
        "Watch": ["Watch"],
        "Lease": ["LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive", "LeaseLeases"],
    }


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (rpc_pb2.LeaseGrantRequest(TTL=5, ID=-1), "0805 10ffffffffffffffffff01"),
        (rpc_pb2.LeaseTimeToLiveResponse(TTL=1, grantedTTL=2, keys=[b"k"]), "1801 2002 2a016b"),
        (rpc_pb2.Compare(range_end=b"z"), "8204 017a"),
        (rpc_pb2.WatchResponse(events=[kv_pb2.Event(type=kv_pb2.Event.DELETE)]), "5a02 0801"),
        (rpc_pb2.RangeRequest(sort_target=rpc_pb2.RangeRequest.MOD, limit=1), "1801 3003"),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Message) else "",
)
def test_a_message_has_etcds_field_numbers(message: Message, encoded: str) -> None:
    assert message.SerializeToString() == bytes.fromhex(encoded)


def test_encoded_changes_are_concatenated() -> None:
    put = field(1, field(1, key_value(b"k", 2, 3, 2, b"v", 9)))
    ended = journal_pb2.Changes(changes=[{"ended": {"id": -9}}]).SerializeToString()
    changes = journal_pb2.Changes.FromString(put + ended).changes
    assert [change.WhichOneof("what") for change in changes] == ["put", "ended"]
    assert changes[0].put == kv_pb2.KeyValue(
        key=b"k", create_revision=2, mod_revision=3, version=2, value=b"v", lease=9
    )
    assert changes[1].ended.id == -9
