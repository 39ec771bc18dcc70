# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/renewal.proto: change that one.
"""Messages of `renewal.proto`, in the private descriptor pool."""

from leasehold.wire import services_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\rrenewal.proto\x12\x0cleaseho'
    b'ld.v1\x1a\x0eservices.proto"\xfc\x01'
    b'\n\x0eLeaseReference\x125\n\x04kind'
    b'\x18\x01 \x01(\x0e2!.leasehold.v1.Le'
    b'aseReference.KindR\x04kind\x12'
    b'\x18\n\x07grantor\x18\x02 \x01(\tR\x07granto'
    b'r\x12\x0e\n\x02id\x18\x03 \x01(\x03R\x02id\x12\x16\n\x06coo'
    b'kie\x18\x04 \x01(\x0cR\x06cookie\x12\x1c\n\tend'
    b'points\x18\x05 \x03(\tR\tendpoints\x12'
    b' \n\x0bcredentials\x18\x06 \x01(\tR\x0bcr'
    b'edentials"1\n\x04Kind\x12\x10\n\x0cUNK'
    b'NOWN_KIND\x10\x00\x12\r\n\tLEASEHOLD'
    b'\x10\x01\x12\x08\n\x04ETCD\x10\x02")\n\x10CreateSe'
    b'tRequest\x12\x15\n\x06ttl_ms\x18\x01 \x01(\x03'
    b'R\x05ttlMs"T\n\x11CreateSetResp'
    b'onse\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12\x15\n\x06'
    b'ttl_ms\x18\x02 \x01(\x03R\x05ttlMs\x12\x18\n\x07g'
    b'rantor\x18\x03 \x01(\tR\x07grantor""\n'
    b'\x0eShowSetRequest\x12\x10\n\x03set\x18\x01'
    b' \x01(\tR\x03set"\xc9\x01\n\x07SetInfo\x12\x0e\n'
    b'\x02id\x18\x01 \x01(\tR\x02id\x12!\n\x0cremaini'
    b'ng_ms\x18\x02 \x01(\x03R\x0bremainingMs'
    b'\x12\x18\n\x07members\x18\x03 \x01(\x03R\x07membe'
    b'rs\x128\n\tlisteners\x18\x04 \x03(\x0b2\x1a.'
    b'leasehold.v1.ListenerInf'
    b'oR\tlisteners\x12\x1d\n\nlast_err'
    b'or\x18\x05 \x01(\tR\tlastError\x12\x18\n\x07g'
    b'rantor\x18\x06 \x01(\tR\x07grantor"\xd1\x01'
    b'\n\x0cListenerInfo\x12.\n\x04kind\x18\x01'
    b' \x01(\x0e2\x1a.leasehold.v1.SetE'
    b'ventKindR\x04kind\x12\x16\n\x06number'
    b'\x18\x02 \x01(\x03R\x06number\x128\n\x08listen'
    b'er\x18\x03 \x01(\x0b2\x1c.leasehold.v1.'
    b'ListenerTargetR\x08listener'
    b'\x12 \n\x0bundelivered\x18\x04 \x01(\x03R\x0bu'
    b'ndelivered\x12\x1d\n\nlast_error'
    b'\x18\x05 \x01(\tR\tlastError"\xb7\x01\n\x0fRe'
    b'newForRequest\x12\x10\n\x03set\x18\x01 \x01'
    b'(\tR\x03set\x12\x1c\n\treference\x18\x02 \x01'
    b'(\x0cR\treference\x12!\n\x0cremaini'
    b'ng_ms\x18\x03 \x01(\x03R\x0bremainingMs'
    b'\x12\x17\n\x07term_ms\x18\x04 \x01(\x03R\x06termM'
    b's\x12\x1d\n\ndesired_ms\x18\x05 \x01(\x03R\td'
    b'esiredMs\x12\x19\n\x08renew_ms\x18\x06 \x01'
    b'(\x03R\x07renewMs"\x12\n\x10RenewForR'
    b'esponse"?\n\rRemoveRequest'
    b'\x12\x10\n\x03set\x18\x01 \x01(\tR\x03set\x12\x1c\n\tre'
    b'ference\x18\x02 \x01(\x0cR\treference'
    b'"A\n\x0eRemoveResponse\x12/\n\x06me'
    b'mber\x18\x01 \x01(\x0b2\x17.leasehold.v'
    b'1.SetMemberR\x06member"e\n\tS'
    b'etMember\x12\x1c\n\treference\x18\x01 '
    b'\x01(\x0cR\treference\x12!\n\x0cremain'
    b'ing_ms\x18\x02 \x01(\x03R\x0bremainingM'
    b's\x12\x17\n\x07term_ms\x18\x03 \x01(\x03R\x06term'
    b'Ms"A\n\x0eMembersRequest\x12\x10\n\x03'
    b'set\x18\x01 \x01(\tR\x03set\x12\x1d\n\npage_t'
    b'oken\x18\x02 \x01(\x0cR\tpageToken"l\n'
    b'\x0fMembersResponse\x121\n\x07memb'
    b'ers\x18\x01 \x03(\x0b2\x17.leasehold.v1'
    b'.SetMemberR\x07members\x12&\n\x0fn'
    b'ext_page_token\x18\x02 \x01(\x0cR\rne'
    b'xtPageToken"\xd2\x01\n\x12SetListe'
    b'nerRequest\x12\x10\n\x03set\x18\x01 \x01(\tR'
    b'\x03set\x12.\n\x04kind\x18\x02 \x01(\x0e2\x1a.lea'
    b'sehold.v1.SetEventKindR\x04'
    b'kind\x128\n\x08listener\x18\x03 \x01(\x0b2\x1c'
    b'.leasehold.v1.ListenerTa'
    b'rgetR\x08listener\x12\x1a\n\x08handba'
    b'ck\x18\x04 \x01(\x0cR\x08handback\x12$\n\x0emi'
    b'n_warning_ms\x18\x05 \x01(\x03R\x0cminW'
    b'arningMs"P\n\x13SetListenerR'
    b'esponse\x12\x16\n\x06number\x18\x01 \x01(\x03R'
    b'\x06number\x12!\n\x0cremaining_ms\x18'
    b'\x02 \x01(\x03R\x0bremainingMs"X\n\x14Cl'
    b'earListenerRequest\x12\x10\n\x03se'
    b't\x18\x01 \x01(\tR\x03set\x12.\n\x04kind\x18\x02 \x01'
    b'(\x0e2\x1a.leasehold.v1.SetEve'
    b'ntKindR\x04kind"\x17\n\x15ClearLis'
    b'tenerResponse"\'\n\x0fListSet'
    b'sRequest\x12\x14\n\x05after\x18\x01 \x01(\tR'
    b'\x05after"Q\n\x10ListSetsRespon'
    b'se\x12)\n\x04sets\x18\x01 \x03(\x0b2\x15.lease'
    b'hold.v1.SetInfoR\x04sets\x12\x12\n'
    b'\x04next\x18\x02 \x01(\tR\x04next"J\n\x0eWar'
    b'ningPayload\x12!\n\x0cremaining'
    b'_ms\x18\x01 \x01(\x03R\x0bremainingMs\x12\x15'
    b'\n\x06end_ms\x18\x02 \x01(\x03R\x05endMs"w\n'
    b'\x0eFailurePayload\x12\x1c\n\trefer'
    b'ence\x18\x01 \x01(\x0cR\treference\x12\x15\n'
    b'\x06end_ms\x18\x02 \x01(\x03R\x05endMs\x120\n\x05'
    b'error\x18\x03 \x01(\x0b2\x1a.leasehold.'
    b'v1.RenewalErrorR\x05error"_'
    b'\n\x0cRenewalError\x12\x1d\n\nclass_'
    b'name\x18\x01 \x01(\tR\tclassName\x12\x16\n'
    b'\x06status\x18\x02 \x01(\x05R\x06status\x12\x18\n'
    b'\x07message\x18\x03 \x01(\tR\x07message*'
    b'N\n\x0cSetEventKind\x12\x11\n\rUNKNO'
    b'WN_EVENT\x10\x00\x12\x16\n\x12EXPIRATION'
    b'_WARNING\x10\x01\x12\x13\n\x0fRENEWAL_FA'
    b'ILURE\x10\x022\xe8\x04\n\x07Renewal\x12L\n\tC'
    b'reateSet\x12\x1e.leasehold.v1.'
    b'CreateSetRequest\x1a\x1f.lease'
    b'hold.v1.CreateSetRespons'
    b'e\x12>\n\x07ShowSet\x12\x1c.leasehold'
    b'.v1.ShowSetRequest\x1a\x15.lea'
    b'sehold.v1.SetInfo\x12I\n\x08Ren'
    b'ewFor\x12\x1d.leasehold.v1.Ren'
    b'ewForRequest\x1a\x1e.leasehold'
    b'.v1.RenewForResponse\x12C\n\x06'
    b'Remove\x12\x1b.leasehold.v1.Re'
    b'moveRequest\x1a\x1c.leasehold.'
    b'v1.RemoveResponse\x12F\n\x07Mem'
    b'bers\x12\x1c.leasehold.v1.Memb'
    b'ersRequest\x1a\x1d.leasehold.v'
    b'1.MembersResponse\x12R\n\x0bSet'
    b'Listener\x12 .leasehold.v1.'
    b'SetListenerRequest\x1a!.lea'
    b'sehold.v1.SetListenerRes'
    b'ponse\x12X\n\rClearListener\x12"'
    b'.leasehold.v1.ClearListe'
    b'nerRequest\x1a#.leasehold.v'
    b'1.ClearListenerResponse\x12'
    b'I\n\x08ListSets\x12\x1d.leasehold.'
    b'v1.ListSetsRequest\x1a\x1e.lea'
    b'sehold.v1.ListSetsRespon'
    b'seb\x06proto3'
)

LeaseReference = message_class(DESCRIPTOR, "LeaseReference")
CreateSetRequest = message_class(DESCRIPTOR, "CreateSetRequest")
CreateSetResponse = message_class(DESCRIPTOR, "CreateSetResponse")
ShowSetRequest = message_class(DESCRIPTOR, "ShowSetRequest")
SetInfo = message_class(DESCRIPTOR, "SetInfo")
ListenerInfo = message_class(DESCRIPTOR, "ListenerInfo")
RenewForRequest = message_class(DESCRIPTOR, "RenewForRequest")
RenewForResponse = message_class(DESCRIPTOR, "RenewForResponse")
RemoveRequest = message_class(DESCRIPTOR, "RemoveRequest")
RemoveResponse = message_class(DESCRIPTOR, "RemoveResponse")
SetMember = message_class(DESCRIPTOR, "SetMember")
MembersRequest = message_class(DESCRIPTOR, "MembersRequest")
MembersResponse = message_class(DESCRIPTOR, "MembersResponse")
SetListenerRequest = message_class(DESCRIPTOR, "SetListenerRequest")
SetListenerResponse = message_class(DESCRIPTOR, "SetListenerResponse")
ClearListenerRequest = message_class(DESCRIPTOR, "ClearListenerRequest")
ClearListenerResponse = message_class(DESCRIPTOR, "ClearListenerResponse")
ListSetsRequest = message_class(DESCRIPTOR, "ListSetsRequest")
ListSetsResponse = message_class(DESCRIPTOR, "ListSetsResponse")
WarningPayload = message_class(DESCRIPTOR, "WarningPayload")
FailurePayload = message_class(DESCRIPTOR, "FailurePayload")
RenewalError = message_class(DESCRIPTOR, "RenewalError")
UNKNOWN_EVENT = 0
EXPIRATION_WARNING = 1
RENEWAL_FAILURE = 2
