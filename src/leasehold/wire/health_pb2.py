# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/health.proto: change that one.
"""Messages of `health.proto`, in the private descriptor pool."""

from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0chealth.proto\x12\x0egrpc.hea'
    b'lth.v1".\n\x12HealthCheckReq'
    b'uest\x12\x18\n\x07service\x18\x01 \x01(\tR\x07s'
    b'ervice"\xb1\x01\n\x13HealthCheckRe'
    b'sponse\x12I\n\x06status\x18\x01 \x01(\x0e21'
    b'.grpc.health.v1.HealthCh'
    b'eckResponse.ServingStatu'
    b'sR\x06status"O\n\rServingStat'
    b'us\x12\x0b\n\x07UNKNOWN\x10\x00\x12\x0b\n\x07SERVI'
    b'NG\x10\x01\x12\x0f\n\x0bNOT_SERVING\x10\x02\x12\x13\n'
    b'\x0fSERVICE_UNKNOWN\x10\x03"\x13\n\x11He'
    b'althListRequest"\xc4\x01\n\x12Heal'
    b'thListResponse\x12L\n\x08status'
    b'es\x18\x01 \x03(\x0b20.grpc.health.v'
    b'1.HealthListResponse.Sta'
    b'tusesEntryR\x08statuses\x1a`\n\r'
    b'StatusesEntry\x12\x10\n\x03key\x18\x01 \x01'
    b'(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#'
    b'.grpc.health.v1.HealthCh'
    b'eckResponseR\x05value:\x028\x012\xfd'
    b'\x01\n\x06Health\x12P\n\x05Check\x12".grp'
    b'c.health.v1.HealthCheckR'
    b'equest\x1a#.grpc.health.v1.'
    b'HealthCheckResponse\x12M\n\x04L'
    b'ist\x12!.grpc.health.v1.Hea'
    b'lthListRequest\x1a".grpc.he'
    b'alth.v1.HealthListRespon'
    b'se\x12R\n\x05Watch\x12".grpc.healt'
    b'h.v1.HealthCheckRequest\x1a'
    b'#.grpc.health.v1.HealthC'
    b'heckResponse0\x01b\x06proto3'
)

HealthCheckRequest = message_class(DESCRIPTOR, "HealthCheckRequest")
HealthCheckResponse = message_class(DESCRIPTOR, "HealthCheckResponse")
HealthListRequest = message_class(DESCRIPTOR, "HealthListRequest")
HealthListResponse = message_class(DESCRIPTOR, "HealthListResponse")
