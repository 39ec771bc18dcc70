# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/services.proto: change that one.
"""Messages of `services.proto`, in the private descriptor pool."""

from leasehold.wire import leases_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0eservices.proto\x12\x0cleaseh'
    b'old.v1\x1a\x0cleases.proto"\x81\x01\n'
    b'\x0cLeasedRecord\x12\x15\n\x06end_ms\x18'
    b'\x01 \x01(\x03R\x05endMs\x12\x17\n\x07term_ms\x18'
    b'\x02 \x01(\x03R\x06termMs\x12 \n\x0clease_t'
    b'tl_ms\x18\x03 \x01(\x03R\nleaseTtlMs\x12'
    b'\x1f\n\x0bterm_number\x18\x04 \x01(\x03R\nte'
    b'rmNumber"@\n\x0cServerRecord'
    b'\x12\x16\n\x06server\x18\x01 \x01(\tR\x06server'
    b'\x12\x18\n\x07address\x18\x02 \x01(\tR\x07addre'
    b'ss"\xdc\x01\n\x12StoredRegistratio'
    b'n\x12\x16\n\x06number\x18\x01 \x01(\x03R\x06numbe'
    b'r\x128\n\x08listener\x18\x02 \x01(\x0b2\x1c.le'
    b'asehold.v1.ListenerTarge'
    b'tR\x08listener\x12\x1a\n\x08handback\x18'
    b'\x03 \x01(\x0cR\x08handback\x12!\n\x0cparam'
    b'eter_ms\x18\x04 \x01(\x03R\x0bparameter'
    b'Ms\x12\x18\n\x07dropped\x18\x05 \x01(\x03R\x07dro'
    b'pped\x12\x1b\n\ttold_term\x18\x06 \x01(\x03R'
    b'\x08toldTerm"<\n\x0eListenerTar'
    b'get\x12\x1a\n\x08endpoint\x18\x01 \x01(\tR\x08e'
    b'ndpoint\x12\x0e\n\x02id\x18\x02 \x01(\tR\x02id"'
    b"'\n\x0bStoredEvent\x12\x18\n\x07payloa"
    b'd\x18\x01 \x01(\x0cR\x07payload"\xb3\x01\n\x0cSto'
    b'redMember\x12\x1c\n\treference\x18\x01'
    b' \x01(\x0cR\treference\x12$\n\x0edesir'
    b'ed_end_ms\x18\x02 \x01(\x03R\x0cdesired'
    b'EndMs\x12\x19\n\x08renew_ms\x18\x03 \x01(\x03R'
    b'\x07renewMs\x12\x15\n\x06end_ms\x18\x04 \x01(\x03'
    b'R\x05endMs\x12\x17\n\x07term_ms\x18\x05 \x01(\x03'
    b'R\x06termMs\x12\x14\n\x05order\x18\x06 \x01(\x03R'
    b'\x05order"=\n\nStoredMail\x12/\n\x05'
    b'event\x18\x01 \x01(\x0b2\x19.leasehold.'
    b'v1.RemoteEventR\x05event"\xa1\x01'
    b'\n\x0bRemoteEvent\x12\x18\n\x07service'
    b'\x18\x01 \x01(\tR\x07service\x12\x16\n\x06sourc'
    b'e\x18\x02 \x01(\tR\x06source\x12\x12\n\x04kind\x18'
    b'\x03 \x01(\x03R\x04kind\x12\x16\n\x06number\x18\x04 '
    b'\x01(\x03R\x06number\x12\x1a\n\x08handback\x18'
    b'\x05 \x01(\x0cR\x08handback\x12\x18\n\x07paylo'
    b'ad\x18\x06 \x01(\x0cR\x07payload2T\n\x07Rec'
    b'ords\x12I\n\x08RenewAll\x12\x1d.lease'
    b'hold.v1.RenewAllRequest\x1a'
    b'\x1e.leasehold.v1.RenewAllR'
    b'esponseb\x06proto3'
)

LeasedRecord = message_class(DESCRIPTOR, "LeasedRecord")
ServerRecord = message_class(DESCRIPTOR, "ServerRecord")
StoredRegistration = message_class(DESCRIPTOR, "StoredRegistration")
ListenerTarget = message_class(DESCRIPTOR, "ListenerTarget")
StoredEvent = message_class(DESCRIPTOR, "StoredEvent")
StoredMember = message_class(DESCRIPTOR, "StoredMember")
StoredMail = message_class(DESCRIPTOR, "StoredMail")
RemoteEvent = message_class(DESCRIPTOR, "RemoteEvent")
