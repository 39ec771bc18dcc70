# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/registry.proto: change that one.
"""Messages of `registry.proto`, in the private descriptor pool."""

from leasehold.wire import services_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0eregistry.proto\x12\x0cleaseh'
    b'old.v1\x1a\x0eservices.proto"7'
    b'\n\x0bServiceType\x12\x12\n\x04name\x18\x01 '
    b'\x01(\tR\x04name\x12\x14\n\x05bases\x18\x02 \x03(\t'
    b'R\x05bases"\xb3\x01\n\x0cAttributeSet'
    b'\x12\x12\n\x04kind\x18\x01 \x01(\tR\x04kind\x12\x14\n\x05'
    b'bases\x18\x02 \x03(\tR\x05bases\x12>\n\x06fi'
    b'elds\x18\x03 \x03(\x0b2&.leasehold.v'
    b'1.AttributeSet.FieldsEnt'
    b'ryR\x06fields\x1a9\n\x0bFieldsEntr'
    b'y\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12\x14\n\x05v'
    b'alue\x18\x02 \x01(\tR\x05value:\x028\x01"W\n'
    b'\x11ServiceDescriptor\x12\x12\n\x04ty'
    b'pe\x18\x01 \x01(\tR\x04type\x12\x1a\n\x08encodi'
    b'ng\x18\x02 \x01(\tR\x08encoding\x12\x12\n\x04da'
    b'ta\x18\x03 \x01(\x0cR\x04data"\x95\x02\n\x0bServi'
    b'ceItem\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12?'
    b'\n\ndescriptor\x18\x02 \x01(\x0b2\x1f.lea'
    b'sehold.v1.ServiceDescrip'
    b'torR\ndescriptor\x12/\n\x05types'
    b'\x18\x03 \x03(\x0b2\x19.leasehold.v1.Se'
    b'rviceTypeR\x05types\x12:\n\nattr'
    b'ibutes\x18\x04 \x03(\x0b2\x1a.leasehold'
    b'.v1.AttributeSetR\nattrib'
    b'utes\x12\x1a\n\x08endpoint\x18\x05 \x01(\tR\x08'
    b'endpoint\x12,\n\x06health\x18\x06 \x01(\x0e'
    b'2\x14.leasehold.v1.HealthR\x06'
    b'health"[\n\nStoredItem\x12\x12\n\x04'
    b'item\x18\x01 \x01(\x0cR\x04item\x12"\n\x0cregi'
    b'stration\x18\x02 \x01(\tR\x0cregistra'
    b'tion\x12\x15\n\x06ttl_ms\x18\x03 \x01(\x03R\x05tt'
    b'lMs"\x8b\x01\n\x0cItemTemplate\x12\x0e\n\x02'
    b'id\x18\x01 \x01(\tR\x02id\x12/\n\x05types\x18\x02 '
    b'\x03(\x0b2\x19.leasehold.v1.Servi'
    b'ceTypeR\x05types\x12:\n\nattribu'
    b'tes\x18\x03 \x03(\x0b2\x1a.leasehold.v1'
    b'.AttributeSetR\nattribute'
    b's"\x11\n\x0fDescribeRequest"\x94\x01\n'
    b'\rRegistrarInfo\x12\x0e\n\x02id\x18\x01 \x01'
    b'(\tR\x02id\x12\x16\n\x06groups\x18\x02 \x03(\tR\x06'
    b'groups\x12#\n\rgroups_number\x18'
    b'\x03 \x01(\x03R\x0cgroupsNumber\x12\x1c\n\te'
    b'ndpoints\x18\x04 \x03(\tR\tendpoint'
    b's\x12\x18\n\x07cluster\x18\x05 \x01(\tR\x07clus'
    b'ter"m\n\x0fRegisterRequest\x12-'
    b'\n\x04item\x18\x01 \x01(\x0b2\x19.leasehold'
    b'.v1.ServiceItemR\x04item\x12\x15\n'
    b'\x06ttl_ms\x18\x02 \x01(\x03R\x05ttlMs\x12\x14\n\x05'
    b'lease\x18\x03 \x01(\x03R\x05lease"\x8f\x01\n\x10R'
    b'egisterResponse\x12\x0e\n\x02id\x18\x01 '
    b'\x01(\tR\x02id\x12"\n\x0cregistration\x18'
    b'\x02 \x01(\tR\x0cregistration\x12\x15\n\x06t'
    b'tl_ms\x18\x03 \x01(\x03R\x05ttlMs\x12\x18\n\x07gr'
    b'antor\x18\x04 \x01(\tR\x07grantor\x12\x16\n\x06'
    b'cookie\x18\x05 \x01(\tR\x06cookie"\xd1\x01\n'
    b'\rLookupRequest\x126\n\x08templa'
    b'te\x18\x01 \x01(\x0b2\x1a.leasehold.v1.'
    b'ItemTemplateR\x08template\x12\x14'
    b'\n\x05limit\x18\x02 \x01(\x03R\x05limit\x12\x10\n\x03'
    b'one\x18\x03 \x01(\x08R\x03one\x12\x18\n\x07passin'
    b'g\x18\x04 \x01(\x08R\x07passing\x12\x14\n\x05stal'
    b'e\x18\x05 \x01(\x08R\x05stale\x12\x14\n\x05after\x18'
    b'\x06 \x01(\tR\x05after\x12\x1a\n\x08revision'
    b'\x18\x07 \x01(\x03R\x08revision"l\n\x0eLook'
    b'upResponse\x12\x14\n\x05items\x18\x01 \x03('
    b'\x0cR\x05items\x12\x14\n\x05total\x18\x02 \x01(\x03R'
    b'\x05total\x12\x1a\n\x08revision\x18\x03 \x01(\x03'
    b'R\x08revision\x12\x12\n\x04next\x18\x04 \x01(\t'
    b'R\x04next"}\n\x0fAttributeUpdat'
    b'e\x126\n\x08template\x18\x01 \x01(\x0b2\x1a.le'
    b'asehold.v1.AttributeSetR'
    b'\x08template\x122\n\x06update\x18\x02 \x01('
    b'\x0b2\x1a.leasehold.v1.Attribu'
    b'teSetR\x06update"\x99\x02\n\rChange'
    b'Request\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12'
    b'"\n\x0cregistration\x18\x02 \x01(\tR\x0cr'
    b'egistration\x12/\n\x03add\x18\x03 \x01(\x0b'
    b'2\x1b.leasehold.v1.Attribut'
    b'eSetsH\x00R\x03add\x12/\n\x03set\x18\x04 \x01('
    b'\x0b2\x1b.leasehold.v1.Attribu'
    b'teSetsH\x00R\x03set\x128\n\x06modify\x18'
    b'\x05 \x01(\x0b2\x1e.leasehold.v1.Att'
    b'ributeUpdatesH\x00R\x06modify\x12'
    b'.\n\x06health\x18\x06 \x01(\x0e2\x14.leaseh'
    b'old.v1.HealthH\x00R\x06healthB'
    b'\x08\n\x06change"?\n\rAttributeSe'
    b'ts\x12.\n\x04sets\x18\x01 \x03(\x0b2\x1a.lease'
    b'hold.v1.AttributeSetR\x04se'
    b'ts"K\n\x10AttributeUpdates\x127'
    b'\n\x07updates\x18\x01 \x03(\x0b2\x1d.leaseh'
    b'old.v1.AttributeUpdateR\x07'
    b'updates"\x10\n\x0eChangeRespons'
    b'e"\xdd\x01\n\x14RequestEventsReque'
    b'st\x126\n\x08template\x18\x01 \x01(\x0b2\x1a.l'
    b'easehold.v1.ItemTemplate'
    b'R\x08template\x12 \n\x0btransition'
    b's\x18\x02 \x01(\x03R\x0btransitions\x128\n\x08'
    b'listener\x18\x03 \x01(\x0b2\x1c.leaseho'
    b'ld.v1.ListenerTargetR\x08li'
    b'stener\x12\x1a\n\x08handback\x18\x04 \x01(\x0c'
    b'R\x08handback\x12\x15\n\x06ttl_ms\x18\x05 \x01'
    b'(\x03R\x05ttlMs"p\n\x15RequestEven'
    b'tsResponse\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02'
    b'id\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R\x05ttlM'
    b's\x12\x18\n\x07grantor\x18\x03 \x01(\tR\x07gran'
    b'tor\x12\x16\n\x06number\x18\x04 \x01(\x03R\x06num'
    b'ber"\x85\x01\n\tItemEvent\x128\n\ntra'
    b'nsition\x18\x01 \x01(\x0e2\x18.leasehol'
    b'd.v1.TransitionR\ntransit'
    b'ion\x12\x0e\n\x02id\x18\x02 \x01(\tR\x02id\x12\x12\n\x04i'
    b'tem\x18\x03 \x01(\x0cR\x04item\x12\x1a\n\x08revis'
    b'ion\x18\x04 \x01(\x03R\x08revision"\xc4\x01\n\x12'
    b'StoredEventRequest\x126\n\x08te'
    b'mplate\x18\x01 \x01(\x0b2\x1a.leasehold'
    b'.v1.ItemTemplateR\x08templa'
    b'te\x12 \n\x0btransitions\x18\x02 \x01(\x03R'
    b'\x0btransitions\x128\n\x08listener'
    b'\x18\x03 \x01(\x0b2\x1c.leasehold.v1.Li'
    b'stenerTargetR\x08listener\x12\x1a'
    b'\n\x08handback\x18\x04 \x01(\x0cR\x08handba'
    b'ck"I\n\x13StoredEventProgres'
    b's\x12\x16\n\x06number\x18\x01 \x01(\x03R\x06numbe'
    b'r\x12\x1a\n\x08revision\x18\x02 \x01(\x03R\x08rev'
    b'ision"e\n\x11WatchItemsReque'
    b'st\x126\n\x08template\x18\x01 \x01(\x0b2\x1a.l'
    b'easehold.v1.ItemTemplate'
    b'R\x08template\x12\x18\n\x07passing\x18\x02 '
    b'\x01(\x08R\x07passing"\x9a\x01\n\x12WatchIt'
    b'emsResponse\x12\x14\n\x05items\x18\x01 \x03'
    b'(\x0cR\x05items\x12\x1f\n\x0bis_complete'
    b'\x18\x02 \x01(\x08R\nisComplete\x121\n\x07ch'
    b'anges\x18\x03 \x03(\x0b2\x17.leasehold.'
    b'v1.ItemEventR\x07changes\x12\x1a\n'
    b'\x08revision\x18\x04 \x01(\x03R\x08revisio'
    b'n"\x87\x02\n\rBrowseRequest\x126\n\x08t'
    b'emplate\x18\x01 \x01(\x0b2\x1a.leasehol'
    b'd.v1.ItemTemplateR\x08templ'
    b'ate\x12=\n\x07subject\x18\x02 \x01(\x0e2#.l'
    b'easehold.v1.BrowseReques'
    b't.SubjectR\x07subject\x12\x16\n\x06pr'
    b'efix\x18\x03 \x01(\tR\x06prefix\x12\x14\n\x05in'
    b'dex\x18\x04 \x01(\x03R\x05index\x12\x14\n\x05fiel'
    b'd\x18\x05 \x01(\tR\x05field";\n\x07Subjec'
    b't\x12\t\n\x05TYPES\x10\x00\x12\x13\n\x0fATTRIBUT'
    b'E_KINDS\x10\x01\x12\x10\n\x0cFIELD_VALUE'
    b'S\x10\x02"&\n\x0eBrowseResponse\x12\x14\n'
    b'\x05found\x18\x01 \x03(\tR\x05found*3\n\x06H'
    b'ealth\x12\x0b\n\x07PASSING\x10\x00\x12\x0b\n\x07FA'
    b'ILING\x10\x01\x12\x0f\n\x0bMAINTENANCE\x10\x02'
    b'*V\n\nTransition\x12\x11\n\rNO_TRA'
    b'NSITION\x10\x00\x12\x11\n\rMATCH_NOMAT'
    b'CH\x10\x01\x12\x11\n\rNOMATCH_MATCH\x10\x02\x12'
    b'\x0f\n\x0bMATCH_MATCH\x10\x042\x8d\x04\n\x08Reg'
    b'istry\x12F\n\x08Describe\x12\x1d.leas'
    b'ehold.v1.DescribeRequest'
    b'\x1a\x1b.leasehold.v1.Registra'
    b'rInfo\x12I\n\x08Register\x12\x1d.leas'
    b'ehold.v1.RegisterRequest'
    b'\x1a\x1e.leasehold.v1.Register'
    b'Response\x12C\n\x06Lookup\x12\x1b.lea'
    b'sehold.v1.LookupRequest\x1a'
    b'\x1c.leasehold.v1.LookupRes'
    b'ponse\x12C\n\x06Change\x12\x1b.leaseh'
    b'old.v1.ChangeRequest\x1a\x1c.l'
    b'easehold.v1.ChangeRespon'
    b'se\x12Q\n\x06Notify\x12".leasehold'
    b'.v1.RequestEventsRequest'
    b'\x1a#.leasehold.v1.RequestE'
    b'ventsResponse\x12L\n\x05Watch\x12\x1f'
    b'.leasehold.v1.WatchItems'
    b'Request\x1a .leasehold.v1.W'
    b'atchItemsResponse0\x01\x12C\n\x06B'
    b'rowse\x12\x1b.leasehold.v1.Bro'
    b'wseRequest\x1a\x1c.leasehold.v'
    b'1.BrowseResponseb\x06proto3'
)

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
