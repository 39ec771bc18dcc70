# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/events.proto: change that one.
"""Messages of `events.proto`, in the private descriptor pool."""

from leasehold.wire import services_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0cevents.proto\x12\x0cleasehol'
    b'd.v1\x1a\x0eservices.proto"^\n\r'
    b'NotifyRequest\x12\x1a\n\x08listene'
    b'r\x18\x01 \x01(\tR\x08listener\x121\n\x06eve'
    b'nts\x18\x02 \x03(\x0b2\x19.leasehold.v1'
    b'.RemoteEventR\x06events"\x10\n\x0e'
    b'NotifyResponse"-\n\x14Create'
    b'MailboxRequest\x12\x15\n\x06ttl_ms'
    b'\x18\x01 \x01(\x03R\x05ttlMs"X\n\x15CreateM'
    b'ailboxResponse\x12\x0e\n\x02id\x18\x01 \x01'
    b'(\tR\x02id\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R\x05'
    b'ttlMs\x12\x18\n\x07grantor\x18\x03 \x01(\tR\x07'
    b'grantor"s\n\x12ReadMailboxRe'
    b'quest\x12\x18\n\x07mailbox\x18\x01 \x01(\tR\x07'
    b'mailbox\x12\x14\n\x05after\x18\x02 \x01(\x03R\x05'
    b'after\x12\x14\n\x05limit\x18\x03 \x01(\x03R\x05li'
    b'mit\x12\x17\n\x07wait_ms\x18\x04 \x01(\x03R\x06wa'
    b'itMs"[\n\x0cMailboxEvent\x12\x1a\n\x08'
    b'position\x18\x01 \x01(\x03R\x08position'
    b'\x12/\n\x05event\x18\x02 \x01(\x0b2\x19.leaseh'
    b'old.v1.RemoteEventR\x05even'
    b't"I\n\x13ReadMailboxResponse'
    b'\x122\n\x06events\x18\x01 \x03(\x0b2\x1a.lease'
    b'hold.v1.MailboxEventR\x06ev'
    b'ents"J\n\x12AcknowledgeReque'
    b'st\x12\x18\n\x07mailbox\x18\x01 \x01(\tR\x07mai'
    b'lbox\x12\x1a\n\x08position\x18\x02 \x01(\x03R\x08'
    b'position"\x15\n\x13AcknowledgeR'
    b'esponse".\n\x12ShowMailboxRe'
    b'quest\x12\x18\n\x07mailbox\x18\x01 \x01(\tR\x07'
    b'mailbox"\x88\x01\n\x0bMailboxInfo\x12'
    b'\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12!\n\x0cremai'
    b'ning_ms\x18\x02 \x01(\x03R\x0bremaining'
    b'Ms\x12\x16\n\x06events\x18\x03 \x01(\x03R\x06even'
    b'ts\x12\x14\n\x05bytes\x18\x04 \x01(\x03R\x05bytes'
    b'\x12\x18\n\x07grantor\x18\x05 \x01(\tR\x07grant'
    b'or",\n\x14ListMailboxesReque'
    b'st\x12\x14\n\x05after\x18\x01 \x01(\tR\x05after'
    b'"d\n\x15ListMailboxesRespons'
    b'e\x127\n\tmailboxes\x18\x01 \x03(\x0b2\x19.l'
    b'easehold.v1.MailboxInfoR'
    b'\tmailboxes\x12\x12\n\x04next\x18\x02 \x01(\t'
    b'R\x04next2O\n\x08Listener\x12C\n\x06No'
    b'tify\x12\x1b.leasehold.v1.Noti'
    b'fyRequest\x1a\x1c.leasehold.v1'
    b'.NotifyResponse2\x95\x03\n\tMail'
    b'boxes\x12Q\n\x06Create\x12".leaseh'
    b'old.v1.CreateMailboxRequ'
    b'est\x1a#.leasehold.v1.Creat'
    b'eMailboxResponse\x12K\n\x04Read'
    b'\x12 .leasehold.v1.ReadMail'
    b'boxRequest\x1a!.leasehold.v'
    b'1.ReadMailboxResponse\x12R\n'
    b'\x0bAcknowledge\x12 .leasehold'
    b'.v1.AcknowledgeRequest\x1a!'
    b'.leasehold.v1.Acknowledg'
    b'eResponse\x12C\n\x04Show\x12 .leas'
    b'ehold.v1.ShowMailboxRequ'
    b'est\x1a\x19.leasehold.v1.Mailb'
    b'oxInfo\x12O\n\x04List\x12".leaseho'
    b'ld.v1.ListMailboxesReque'
    b'st\x1a#.leasehold.v1.ListMa'
    b'ilboxesResponseb\x06proto3'
)

NotifyRequest = message_class(DESCRIPTOR, "NotifyRequest")
NotifyResponse = message_class(DESCRIPTOR, "NotifyResponse")
CreateMailboxRequest = message_class(DESCRIPTOR, "CreateMailboxRequest")
CreateMailboxResponse = message_class(DESCRIPTOR, "CreateMailboxResponse")
ReadMailboxRequest = message_class(DESCRIPTOR, "ReadMailboxRequest")
MailboxEvent = message_class(DESCRIPTOR, "MailboxEvent")
ReadMailboxResponse = message_class(DESCRIPTOR, "ReadMailboxResponse")
AcknowledgeRequest = message_class(DESCRIPTOR, "AcknowledgeRequest")
AcknowledgeResponse = message_class(DESCRIPTOR, "AcknowledgeResponse")
ShowMailboxRequest = message_class(DESCRIPTOR, "ShowMailboxRequest")
MailboxInfo = message_class(DESCRIPTOR, "MailboxInfo")
ListMailboxesRequest = message_class(DESCRIPTOR, "ListMailboxesRequest")
ListMailboxesResponse = message_class(DESCRIPTOR, "ListMailboxesResponse")
