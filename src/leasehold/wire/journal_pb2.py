# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/journal.proto: change that one.
"""Messages of `journal.proto`, in the private descriptor pool."""

from leasehold.wire import kv_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\rjournal.proto\x12\x11leaseho'
    b'ld.journal\x1a\x08kv.proto">\n\x07'
    b'Changes\x123\n\x07changes\x18\x01 \x03(\x0b'
    b'2\x19.leasehold.journal.Cha'
    b'ngeR\x07changes"\x86\x03\n\x06Change\x12'
    b'$\n\x03put\x18\x01 \x01(\x0b2\x10.mvccpb.Ke'
    b'yValueH\x00R\x03put\x126\n\x07deleted'
    b'\x18\x02 \x01(\x0b2\x1a.leasehold.journ'
    b'al.DeletedH\x00R\x07deleted\x126\n'
    b'\x07granted\x18\x03 \x01(\x0b2\x1a.leaseho'
    b'ld.journal.GrantedH\x00R\x07gr'
    b'anted\x120\n\x05ended\x18\x04 \x01(\x0b2\x18.l'
    b'easehold.journal.EndedH\x00'
    b'R\x05ended\x129\n\x08promised\x18\x05 \x01('
    b'\x0b2\x1b.leasehold.journal.Pr'
    b'omisedH\x00R\x08promised\x12<\n\tco'
    b'mpacted\x18\x06 \x01(\x0b2\x1c.leasehol'
    b'd.journal.CompactedH\x00R\tc'
    b'ompacted\x123\n\x06jumped\x18\x07 \x01(\x0b'
    b'2\x19.leasehold.journal.Jum'
    b'pedH\x00R\x06jumpedB\x06\n\x04what"7\n'
    b'\x07Deleted\x12\x10\n\x03key\x18\x01 \x01(\x0cR\x03k'
    b'ey\x12\x1a\n\x08revision\x18\x02 \x01(\x03R\x08re'
    b'vision"F\n\x07Granted\x12\x0e\n\x02id\x18'
    b'\x01 \x01(\x03R\x02id\x12\x13\n\x05ttl_s\x18\x02 \x01(\x01'
    b'R\x04ttlS\x12\x16\n\x06holder\x18\x03 \x01(\tR\x06'
    b'holder"\x17\n\x05Ended\x12\x0e\n\x02id\x18\x01 '
    b'\x01(\x03R\x02id"9\n\x08Promised\x12\x0e\n\x02i'
    b'd\x18\x01 \x01(\x03R\x02id\x12\x1d\n\npromised_'
    b's\x18\x02 \x01(\x01R\tpromisedS"\'\n\tCo'
    b'mpacted\x12\x1a\n\x08revision\x18\x01 \x01('
    b'\x03R\x08revision"$\n\x06Jumped\x12\x1a\n'
    b'\x08revision\x18\x01 \x01(\x03R\x08revisio'
    b'n"\x17\n\x03Ids\x12\x10\n\x03ids\x18\x01 \x03(\x03R\x03i'
    b'dsb\x06proto3'
)

Changes = message_class(DESCRIPTOR, "Changes")
Change = message_class(DESCRIPTOR, "Change")
Deleted = message_class(DESCRIPTOR, "Deleted")
Granted = message_class(DESCRIPTOR, "Granted")
Ended = message_class(DESCRIPTOR, "Ended")
Promised = message_class(DESCRIPTOR, "Promised")
Compacted = message_class(DESCRIPTOR, "Compacted")
Jumped = message_class(DESCRIPTOR, "Jumped")
Ids = message_class(DESCRIPTOR, "Ids")
