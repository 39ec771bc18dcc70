# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/authpb.proto: change that one.
"""Messages of `authpb.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0cauthpb.proto\x12\x06authpb"1'
    b'\n\x0eUserAddOptions\x12\x1f\n\x0bno_p'
    b'assword\x18\x01 \x01(\x08R\nnoPasswor'
    b'd"~\n\x04User\x12\x12\n\x04name\x18\x01 \x01(\x0cR'
    b'\x04name\x12\x1a\n\x08password\x18\x02 \x01(\x0cR'
    b'\x08password\x12\x14\n\x05roles\x18\x03 \x03(\t'
    b'R\x05roles\x120\n\x07options\x18\x04 \x01(\x0b'
    b'2\x16.authpb.UserAddOptions'
    b'R\x07options"\x9c\x01\n\nPermission'
    b'\x123\n\x08permType\x18\x01 \x01(\x0e2\x17.aut'
    b'hpb.Permission.TypeR\x08per'
    b'mType\x12\x10\n\x03key\x18\x02 \x01(\x0cR\x03key\x12'
    b'\x1b\n\trange_end\x18\x03 \x01(\x0cR\x08rang'
    b'eEnd"*\n\x04Type\x12\x08\n\x04READ\x10\x00\x12\t'
    b'\n\x05WRITE\x10\x01\x12\r\n\tREADWRITE\x10\x02'
    b'"T\n\x04Role\x12\x12\n\x04name\x18\x01 \x01(\x0cR\x04'
    b'name\x128\n\rkeyPermission\x18\x02 '
    b'\x03(\x0b2\x12.authpb.PermissionR'
    b'\rkeyPermissionb\x06proto3'
)

UserAddOptions = message_class(DESCRIPTOR, "UserAddOptions")
User = message_class(DESCRIPTOR, "User")
Permission = message_class(DESCRIPTOR, "Permission")
Role = message_class(DESCRIPTOR, "Role")
