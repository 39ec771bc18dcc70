# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/lock.proto: change that one.
"""Messages of `lock.proto`, in the private descriptor pool."""

from leasehold.wire import rpc_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\nlock.proto\x12\x08v3lockpb\x1a\t'
    b'rpc.proto"7\n\x0bLockRequest'
    b'\x12\x12\n\x04name\x18\x01 \x01(\x0cR\x04name\x12\x14\n\x05'
    b'lease\x18\x02 \x01(\x03R\x05lease"V\n\x0cLo'
    b'ckResponse\x124\n\x06header\x18\x01 \x01'
    b'(\x0b2\x1c.etcdserverpb.Respon'
    b'seHeaderR\x06header\x12\x10\n\x03key\x18'
    b'\x02 \x01(\x0cR\x03key"!\n\rUnlockRequ'
    b'est\x12\x10\n\x03key\x18\x01 \x01(\x0cR\x03key"F\n'
    b'\x0eUnlockResponse\x124\n\x06heade'
    b'r\x18\x01 \x01(\x0b2\x1c.etcdserverpb.R'
    b'esponseHeaderR\x06header2z\n'
    b'\x04Lock\x125\n\x04Lock\x12\x15.v3lockpb'
    b'.LockRequest\x1a\x16.v3lockpb.'
    b'LockResponse\x12;\n\x06Unlock\x12\x17'
    b'.v3lockpb.UnlockRequest\x1a'
    b'\x18.v3lockpb.UnlockRespons'
    b'eb\x06proto3'
)

LockRequest = message_class(DESCRIPTOR, "LockRequest")
LockResponse = message_class(DESCRIPTOR, "LockResponse")
UnlockRequest = message_class(DESCRIPTOR, "UnlockRequest")
UnlockResponse = message_class(DESCRIPTOR, "UnlockResponse")
