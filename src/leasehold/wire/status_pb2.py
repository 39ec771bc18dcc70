# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/status.proto: change that one.
"""Messages of `status.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0cstatus.proto\x12\ngoogle.r'
    b'pc"a\n\x06Status\x12\x12\n\x04code\x18\x01 \x01'
    b'(\x05R\x04code\x12\x18\n\x07message\x18\x02 \x01('
    b'\tR\x07message\x12)\n\x07details\x18\x03 '
    b'\x03(\x0b2\x0f.google.rpc.AnyR\x07de'
    b'tails"6\n\x03Any\x12\x19\n\x08type_url'
    b'\x18\x01 \x01(\tR\x07typeUrl\x12\x14\n\x05value'
    b'\x18\x02 \x01(\x0cR\x05value"\xb9\x01\n\tErrorI'
    b'nfo\x12\x16\n\x06reason\x18\x01 \x01(\tR\x06rea'
    b'son\x12\x16\n\x06domain\x18\x02 \x01(\tR\x06dom'
    b'ain\x12?\n\x08metadata\x18\x03 \x03(\x0b2#.'
    b'google.rpc.ErrorInfo.Met'
    b'adataEntryR\x08metadata\x1a;\n\r'
    b'MetadataEntry\x12\x10\n\x03key\x18\x01 \x01'
    b'(\tR\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05'
    b'value:\x028\x01b\x06proto3'
)

Status = message_class(DESCRIPTOR, "Status")
Any = message_class(DESCRIPTOR, "Any")
ErrorInfo = message_class(DESCRIPTOR, "ErrorInfo")
