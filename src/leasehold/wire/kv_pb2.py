# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/kv.proto: change that one.
"""Messages of `kv.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x08kv.proto\x12\x06mvccpb"\xae\x01\n\x08K'
    b'eyValue\x12\x10\n\x03key\x18\x01 \x01(\x0cR\x03ke'
    b"y\x12'\n\x0fcreate_revision\x18\x02 \x01"
    b'(\x03R\x0ecreateRevision\x12!\n\x0cmo'
    b'd_revision\x18\x03 \x01(\x03R\x0bmodRev'
    b'ision\x12\x18\n\x07version\x18\x04 \x01(\x03R\x07'
    b'version\x12\x14\n\x05value\x18\x05 \x01(\x0cR\x05'
    b'value\x12\x14\n\x05lease\x18\x06 \x01(\x03R\x05le'
    b'ase"\xa3\x01\n\x05Event\x12+\n\x04type\x18\x01 '
    b'\x01(\x0e2\x17.mvccpb.Event.Event'
    b'TypeR\x04type\x12 \n\x02kv\x18\x02 \x01(\x0b2\x10'
    b'.mvccpb.KeyValueR\x02kv\x12)\n\x07'
    b'prev_kv\x18\x03 \x01(\x0b2\x10.mvccpb.K'
    b'eyValueR\x06prevKv" \n\tEvent'
    b'Type\x12\x07\n\x03PUT\x10\x00\x12\n\n\x06DELETE\x10'
    b'\x01b\x06proto3'
)

KeyValue = message_class(DESCRIPTOR, "KeyValue")
Event = message_class(DESCRIPTOR, "Event")
