# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/registry.proto: change that one.
"""Messages of `registry.proto`, in the private descriptor pool."""

from leasehold.wire import services_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0eregistry.proto\x12\x0cleaseh'
    b'old.v1\x1a\x0eservices.proto"\x15'
    b'\n\x13MemberGroupsRequest"\xa3\x01'
    b'\n\x19ChangeMemberGroupsRequ'
    b'est\x12F\n\x06change\x18\x01 \x01(\x0e2..le'
    b'asehold.v1.ChangeMemberG'
    b'roupsRequest.ChangeR\x06cha'
    b'nge\x12\x16\n\x06groups\x18\x02 \x03(\tR\x06gro'
    b'ups"&\n\x06Change\x12\x07\n\x03ADD\x10\x00\x12\x07'
    b'\n\x03SET\x10\x01\x12\n\n\x06REMOVE\x10\x02"S\n\x14M'
    b'emberGroupsResponse\x12\x16\n\x06g'
    b'roups\x18\x01 \x03(\tR\x06groups\x12#\n\rg'
    b'roups_number\x18\x02 \x01(\x03R\x0cgrou'
    b'psNumber"7\n\x0bServiceType\x12'
    b'\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x14\n\x05b'
    b'ases\x18\x02 \x03(\tR\x05bases"\xb3\x01\n\x0cAt'
    b'tributeSet\x12\x12\n\x04kind\x18\x01 \x01(\t'
    b'R\x04kind\x12\x14\n\x05bases\x18\x02 \x03(\tR\x05b'
    b'ases\x12>\n\x06fields\x18\x03 \x03(\x0b2&.l'
    b'easehold.v1.AttributeSet'
    b'.FieldsEntryR\x06fields\x1a9\n\x0b'
    b'FieldsEntry\x12\x10\n\x03key\x18\x01 \x01(\t'
    b'R\x03key\x12\x14\n\x05value\x18\x02 \x01(\tR\x05va'
    b'lue:\x028\x01"W\n\x11ServiceDescri'
    b'ptor\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type'
    b'\x12\x1a\n\x08encoding\x18\x02 \x01(\tR\x08enco'
    b'ding\x12\x12\n\x04data\x18\x03 \x01(\x0cR\x04data'
    b'"\x95\x02\n\x0bServiceItem\x12\x0e\n\x02id\x18\x01'
    b' \x01(\tR\x02id\x12?\n\ndescriptor\x18\x02'
    b' \x01(\x0b2\x1f.leasehold.v1.Serv'
    b'iceDescriptorR\ndescripto'
    b'r\x12/\n\x05types\x18\x03 \x03(\x0b2\x19.lease'
    b'hold.v1.ServiceTypeR\x05typ'
    b'es\x12:\n\nattributes\x18\x04 \x03(\x0b2\x1a'
    b'.leasehold.v1.AttributeS'
    b'etR\nattributes\x12\x1a\n\x08endpoi'
    b'nt\x18\x05 \x01(\tR\x08endpoint\x12,\n\x06he'
    b'alth\x18\x06 \x01(\x0e2\x14.leasehold.v'
    b'1.HealthR\x06health"[\n\nStor'
    b'edItem\x12\x12\n\x04item\x18\x01 \x01(\x0cR\x04it'
    b'em\x12"\n\x0cregistration\x18\x02 \x01(\t'
    b'R\x0cregistration\x12\x15\n\x06ttl_ms'
    b'\x18\x03 \x01(\x03R\x05ttlMs"\x8b\x01\n\x0cItemTe'
    b'mplate\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12/'
    b'\n\x05types\x18\x02 \x03(\x0b2\x19.leasehol'
    b'd.v1.ServiceTypeR\x05types\x12'
    b':\n\nattributes\x18\x03 \x03(\x0b2\x1a.le'
    b'asehold.v1.AttributeSetR'
    b'\nattributes"\x11\n\x0fDescribeR'
    b'equest"\x94\x01\n\rRegistrarInfo'
    b'\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12\x16\n\x06grou'
    b'ps\x18\x02 \x03(\tR\x06groups\x12#\n\rgrou'
    b'ps_number\x18\x03 \x01(\x03R\x0cgroupsN'
    b'umber\x12\x1c\n\tendpoints\x18\x04 \x03(\t'
    b'R\tendpoints\x12\x18\n\x07cluster\x18\x05'
    b' \x01(\tR\x07cluster"m\n\x0fRegiste'
    b'rRequest\x12-\n\x04item\x18\x01 \x01(\x0b2\x19'
    b'.leasehold.v1.ServiceIte'
    b'mR\x04item\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R'
    b'\x05ttlMs\x12\x14\n\x05lease\x18\x03 \x01(\x03R\x05l'
    b'ease"\x8f\x01\n\x10RegisterRespons'
    b'e\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12"\n\x0creg'
    b'istration\x18\x02 \x01(\tR\x0cregistr'
    b'ation\x12\x15\n\x06ttl_ms\x18\x03 \x01(\x03R\x05t'
    b'tlMs\x12\x18\n\x07grantor\x18\x04 \x01(\tR\x07g'
    b'rantor\x12\x16\n\x06cookie\x18\x05 \x01(\tR\x06'
    b'cookie"\xd1\x01\n\rLookupRequest'
    b'\x126\n\x08template\x18\x01 \x01(\x0b2\x1a.lea'
    b'sehold.v1.ItemTemplateR\x08'
    b'template\x12\x14\n\x05limit\x18\x02 \x01(\x03R'
    b'\x05limit\x12\x10\n\x03one\x18\x03 \x01(\x08R\x03one'
    b'\x12\x18\n\x07passing\x18\x04 \x01(\x08R\x07passi'
    b'ng\x12\x14\n\x05stale\x18\x05 \x01(\x08R\x05stale'
    b'\x12\x14\n\x05after\x18\x06 \x01(\tR\x05after\x12\x1a'
    b'\n\x08revision\x18\x07 \x01(\x03R\x08revisi'
    b'on"l\n\x0eLookupResponse\x12\x14\n\x05'
    b'items\x18\x01 \x03(\x0cR\x05items\x12\x14\n\x05to'
    b'tal\x18\x02 \x01(\x03R\x05total\x12\x1a\n\x08revi'
    b'sion\x18\x03 \x01(\x03R\x08revision\x12\x12\n\x04'
    b'next\x18\x04 \x01(\tR\x04next"}\n\x0fAttr'
    b'ibuteUpdate\x126\n\x08template\x18'
    b'\x01 \x01(\x0b2\x1a.leasehold.v1.Att'
    b'ributeSetR\x08template\x122\n\x06u'
    b'pdate\x18\x02 \x01(\x0b2\x1a.leasehold.'
    b'v1.AttributeSetR\x06update"'
    b'\x99\x02\n\rChangeRequest\x12\x0e\n\x02id\x18'
    b'\x01 \x01(\tR\x02id\x12"\n\x0cregistratio'
    b'n\x18\x02 \x01(\tR\x0cregistration\x12/\n'
    b'\x03add\x18\x03 \x01(\x0b2\x1b.leasehold.v'
    b'1.AttributeSetsH\x00R\x03add\x12/'
    b'\n\x03set\x18\x04 \x01(\x0b2\x1b.leasehold.'
    b'v1.AttributeSetsH\x00R\x03set\x12'
    b'8\n\x06modify\x18\x05 \x01(\x0b2\x1e.leaseh'
    b'old.v1.AttributeUpdatesH'
    b'\x00R\x06modify\x12.\n\x06health\x18\x06 \x01('
    b'\x0e2\x14.leasehold.v1.HealthH'
    b'\x00R\x06healthB\x08\n\x06change"?\n\rA'
    b'ttributeSets\x12.\n\x04sets\x18\x01 \x03'
    b'(\x0b2\x1a.leasehold.v1.Attrib'
    b'uteSetR\x04sets"K\n\x10Attribut'
    b'eUpdates\x127\n\x07updates\x18\x01 \x03('
    b'\x0b2\x1d.leasehold.v1.Attribu'
    b'teUpdateR\x07updates"\x10\n\x0eCha'
    b'ngeResponse"\xdd\x01\n\x14RequestE'
    b'ventsRequest\x126\n\x08template'
    b'\x18\x01 \x01(\x0b2\x1a.leasehold.v1.It'
    b'emTemplateR\x08template\x12 \n\x0b'
    b'transitions\x18\x02 \x01(\x03R\x0btrans'
    b'itions\x128\n\x08listener\x18\x03 \x01(\x0b'
    b'2\x1c.leasehold.v1.Listener'
    b'TargetR\x08listener\x12\x1a\n\x08hand'
    b'back\x18\x04 \x01(\x0cR\x08handback\x12\x15\n\x06'
    b'ttl_ms\x18\x05 \x01(\x03R\x05ttlMs"p\n\x15R'
    b'equestEventsResponse\x12\x0e\n\x02'
    b'id\x18\x01 \x01(\tR\x02id\x12\x15\n\x06ttl_ms\x18\x02'
    b' \x01(\x03R\x05ttlMs\x12\x18\n\x07grantor\x18\x03'
    b' \x01(\tR\x07grantor\x12\x16\n\x06number\x18'
    b'\x04 \x01(\x03R\x06number"\x85\x01\n\tItemEv'
    b'ent\x128\n\ntransition\x18\x01 \x01(\x0e2'
    b'\x18.leasehold.v1.Transitio'
    b'nR\ntransition\x12\x0e\n\x02id\x18\x02 \x01('
    b'\tR\x02id\x12\x12\n\x04item\x18\x03 \x01(\x0cR\x04ite'
    b'm\x12\x1a\n\x08revision\x18\x04 \x01(\x03R\x08rev'
    b'ision"\xc4\x01\n\x12StoredEventReq'
    b'uest\x126\n\x08template\x18\x01 \x01(\x0b2\x1a'
    b'.leasehold.v1.ItemTempla'
    b'teR\x08template\x12 \n\x0btransiti'
    b'ons\x18\x02 \x01(\x03R\x0btransitions\x128'
    b'\n\x08listener\x18\x03 \x01(\x0b2\x1c.lease'
    b'hold.v1.ListenerTargetR\x08'
    b'listener\x12\x1a\n\x08handback\x18\x04 \x01'
    b'(\x0cR\x08handback"I\n\x13StoredEv'
    b'entProgress\x12\x16\n\x06number\x18\x01 '
    b'\x01(\x03R\x06number\x12\x1a\n\x08revision\x18'
    b'\x02 \x01(\x03R\x08revision"e\n\x11Watch'
    b'ItemsRequest\x126\n\x08template'
    b'\x18\x01 \x01(\x0b2\x1a.leasehold.v1.It'
    b'emTemplateR\x08template\x12\x18\n\x07'
    b'passing\x18\x02 \x01(\x08R\x07passing"\x9a'
    b'\x01\n\x12WatchItemsResponse\x12\x14\n'
    b'\x05items\x18\x01 \x03(\x0cR\x05items\x12\x1f\n\x0bi'
    b's_complete\x18\x02 \x01(\x08R\nisComp'
    b'lete\x121\n\x07changes\x18\x03 \x03(\x0b2\x17.'
    b'leasehold.v1.ItemEventR\x07'
    b'changes\x12\x1a\n\x08revision\x18\x04 \x01('
    b'\x03R\x08revision"\x87\x02\n\rBrowseRe'
    b'quest\x126\n\x08template\x18\x01 \x01(\x0b2'
    b'\x1a.leasehold.v1.ItemTempl'
    b'ateR\x08template\x12=\n\x07subject'
    b'\x18\x02 \x01(\x0e2#.leasehold.v1.Br'
    b'owseRequest.SubjectR\x07sub'
    b'ject\x12\x16\n\x06prefix\x18\x03 \x01(\tR\x06pr'
    b'efix\x12\x14\n\x05index\x18\x04 \x01(\x03R\x05ind'
    b'ex\x12\x14\n\x05field\x18\x05 \x01(\tR\x05field'
    b'";\n\x07Subject\x12\t\n\x05TYPES\x10\x00\x12\x13'
    b'\n\x0fATTRIBUTE_KINDS\x10\x01\x12\x10\n\x0cF'
    b'IELD_VALUES\x10\x02"&\n\x0eBrowseR'
    b'esponse\x12\x14\n\x05found\x18\x01 \x03(\tR\x05'
    b'found*3\n\x06Health\x12\x0b\n\x07PASSI'
    b'NG\x10\x00\x12\x0b\n\x07FAILING\x10\x01\x12\x0f\n\x0bMAI'
    b'NTENANCE\x10\x02*V\n\nTransition'
    b'\x12\x11\n\rNO_TRANSITION\x10\x00\x12\x11\n\rM'
    b'ATCH_NOMATCH\x10\x01\x12\x11\n\rNOMATC'
    b'H_MATCH\x10\x02\x12\x0f\n\x0bMATCH_MATCH'
    b'\x10\x042\x8d\x04\n\x08Registry\x12F\n\x08Descr'
    b'ibe\x12\x1d.leasehold.v1.Descr'
    b'ibeRequest\x1a\x1b.leasehold.v'
    b'1.RegistrarInfo\x12I\n\x08Regis'
    b'ter\x12\x1d.leasehold.v1.Regis'
    b'terRequest\x1a\x1e.leasehold.v'
    b'1.RegisterResponse\x12C\n\x06Lo'
    b'okup\x12\x1b.leasehold.v1.Look'
    b'upRequest\x1a\x1c.leasehold.v1'
    b'.LookupResponse\x12C\n\x06Chang'
    b'e\x12\x1b.leasehold.v1.ChangeR'
    b'equest\x1a\x1c.leasehold.v1.Ch'
    b'angeResponse\x12Q\n\x06Notify\x12"'
    b'.leasehold.v1.RequestEve'
    b'ntsRequest\x1a#.leasehold.v'
    b'1.RequestEventsResponse\x12'
    b'L\n\x05Watch\x12\x1f.leasehold.v1.'
    b'WatchItemsRequest\x1a .leas'
    b'ehold.v1.WatchItemsRespo'
    b'nse0\x01\x12C\n\x06Browse\x12\x1b.leaseh'
    b'old.v1.BrowseRequest\x1a\x1c.l'
    b'easehold.v1.BrowseRespon'
    b'se2\xc1\x01\n\x05Admin\x12U\n\x0cMemberGr'
    b'oups\x12!.leasehold.v1.Memb'
    b'erGroupsRequest\x1a".leaseh'
    b'old.v1.MemberGroupsRespo'
    b'nse\x12a\n\x12ChangeMemberGroup'
    b"s\x12'.leasehold.v1.ChangeM"
    b'emberGroupsRequest\x1a".lea'
    b'sehold.v1.MemberGroupsRe'
    b'sponseb\x06proto3'
)

MemberGroupsRequest = message_class(DESCRIPTOR, "MemberGroupsRequest")
ChangeMemberGroupsRequest = message_class(DESCRIPTOR, "ChangeMemberGroupsRequest")
MemberGroupsResponse = message_class(DESCRIPTOR, "MemberGroupsResponse")
ServiceType = message_class(DESCRIPTOR, "ServiceType")
AttributeSet = message_class(DESCRIPTOR, "AttributeSet")
ServiceDescriptor = message_class(DESCRIPTOR, "ServiceDescriptor")
ServiceItem = message_class(DESCRIPTOR, "ServiceItem")
StoredItem = message_class(DESCRIPTOR, "StoredItem")
ItemTemplate = message_class(DESCRIPTOR, "ItemTemplate")
DescribeRequest = message_class(DESCRIPTOR, "DescribeRequest")
RegistrarInfo = message_class(DESCRIPTOR, "RegistrarInfo")
RegisterRequest = message_class(DESCRIPTOR, "RegisterRequest")
RegisterResponse = message_class(DESCRIPTOR, "RegisterResponse")
LookupRequest = message_class(DESCRIPTOR, "LookupRequest")
LookupResponse = message_class(DESCRIPTOR, "LookupResponse")
AttributeUpdate = message_class(DESCRIPTOR, "AttributeUpdate")
ChangeRequest = message_class(DESCRIPTOR, "ChangeRequest")
AttributeSets = message_class(DESCRIPTOR, "AttributeSets")
AttributeUpdates = message_class(DESCRIPTOR, "AttributeUpdates")
ChangeResponse = message_class(DESCRIPTOR, "ChangeResponse")
RequestEventsRequest = message_class(DESCRIPTOR, "RequestEventsRequest")
RequestEventsResponse = message_class(DESCRIPTOR, "RequestEventsResponse")
ItemEvent = message_class(DESCRIPTOR, "ItemEvent")
StoredEventRequest = message_class(DESCRIPTOR, "StoredEventRequest")
StoredEventProgress = message_class(DESCRIPTOR, "StoredEventProgress")
WatchItemsRequest = message_class(DESCRIPTOR, "WatchItemsRequest")
WatchItemsResponse = message_class(DESCRIPTOR, "WatchItemsResponse")
BrowseRequest = message_class(DESCRIPTOR, "BrowseRequest")
BrowseResponse = message_class(DESCRIPTOR, "BrowseResponse")
PASSING = 0
FAILING = 1
MAINTENANCE = 2
NO_TRANSITION = 0
MATCH_NOMATCH = 1
NOMATCH_MATCH = 2
MATCH_MATCH = 4
