# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/discovery.proto: change that one.
"""Messages of `discovery.proto`, in the private descriptor pool."""

from leasehold.wire import services_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0fdiscovery.proto\x12\x0clease'
    b'hold.v1\x1a\x0eservices.proto"'
    b'4\n\nGroupNames\x12\x10\n\x03all\x18\x01 \x01'
    b'(\x08R\x03all\x12\x14\n\x05names\x18\x02 \x03(\tR\x05'
    b'names"\xd5\x01\n\x18RegisterDiscov'
    b'eryRequest\x120\n\x06groups\x18\x01 \x01'
    b'(\x0b2\x18.leasehold.v1.GroupN'
    b'amesR\x06groups\x12\x1a\n\x08locators'
    b'\x18\x02 \x03(\tR\x08locators\x128\n\x08list'
    b'ener\x18\x03 \x01(\x0b2\x1c.leasehold.v'
    b'1.ListenerTargetR\x08listen'
    b'er\x12\x1a\n\x08handback\x18\x04 \x01(\x0cR\x08ha'
    b'ndback\x12\x15\n\x06ttl_ms\x18\x05 \x01(\x03R\x05'
    b'ttlMs"\\\n\x19RegisterDiscove'
    b'ryResponse\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02'
    b'id\x12\x15\n\x06ttl_ms\x18\x02 \x01(\x03R\x05ttlM'
    b's\x12\x18\n\x07grantor\x18\x03 \x01(\tR\x07gran'
    b'tor":\n\x14ShowDiscoveryRequ'
    b'est\x12"\n\x0cregistration\x18\x01 \x01('
    b'\tR\x0cregistration"\xdd\x02\n\rDisc'
    b'overyInfo\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02i'
    b'd\x12!\n\x0cremaining_ms\x18\x02 \x01(\x03R'
    b'\x0bremainingMs\x12\x18\n\x07grantor\x18'
    b'\x03 \x01(\tR\x07grantor\x120\n\x06groups'
    b'\x18\x04 \x01(\x0b2\x18.leasehold.v1.Gr'
    b'oupNamesR\x06groups\x12\x1a\n\x08loca'
    b'tors\x18\x05 \x03(\tR\x08locators\x12\x1e\n\n'
    b'registrars\x18\x06 \x01(\x03R\nregist'
    b'rars\x12\x16\n\x06number\x18\x07 \x01(\x03R\x06nu'
    b'mber\x128\n\x08listener\x18\x08 \x01(\x0b2\x1c'
    b'.leasehold.v1.ListenerTa'
    b'rgetR\x08listener\x12 \n\x0bundeli'
    b'vered\x18\t \x01(\x03R\x0bundelivered'
    b'\x12\x1d\n\nlast_error\x18\n \x01(\tR\tla'
    b'stError"M\n\x11RegistrarsReq'
    b'uest\x12"\n\x0cregistration\x18\x01 \x01'
    b'(\tR\x0cregistration\x12\x14\n\x05afte'
    b'r\x18\x02 \x01(\tR\x05after"f\n\x12Regist'
    b'rarsResponse\x12<\n\nregistra'
    b'rs\x18\x01 \x03(\x0b2\x1c.leasehold.v1.'
    b'FoundRegistrarR\nregistra'
    b'rs\x12\x12\n\x04next\x18\x02 \x01(\tR\x04next"V'
    b'\n\x0eFoundRegistrar\x12\x0e\n\x02id\x18\x01'
    b' \x01(\tR\x02id\x12\x16\n\x06groups\x18\x02 \x03(\t'
    b'R\x06groups\x12\x1c\n\tregistrar\x18\x03 '
    b'\x01(\x0cR\tregistrar"\xa1\x01\n\x13Chang'
    b'eGroupsRequest\x12"\n\x0cregist'
    b'ration\x18\x01 \x01(\tR\x0cregistrati'
    b'on\x124\n\x06change\x18\x02 \x01(\x0e2\x1c.lea'
    b'sehold.v1.InterestChange'
    b'R\x06change\x120\n\x06groups\x18\x03 \x01(\x0b'
    b'2\x18.leasehold.v1.GroupNam'
    b'esR\x06groups"\x16\n\x14ChangeGrou'
    b'psResponse"\x8d\x01\n\x15ChangeLoc'
    b'atorsRequest\x12"\n\x0cregistra'
    b'tion\x18\x01 \x01(\tR\x0cregistration'
    b'\x124\n\x06change\x18\x02 \x01(\x0e2\x1c.lease'
    b'hold.v1.InterestChangeR\x06'
    b'change\x12\x1a\n\x08locators\x18\x03 \x03(\t'
    b'R\x08locators"\x18\n\x16ChangeLoca'
    b'torsResponse"R\n\x0eDiscardR'
    b'equest\x12"\n\x0cregistration\x18\x01'
    b' \x01(\tR\x0cregistration\x12\x1c\n\tre'
    b'gistrar\x18\x02 \x01(\tR\tregistrar'
    b'"\x11\n\x0fDiscardResponse".\n\x16L'
    b'istDiscoveriesRequest\x12\x14\n'
    b'\x05after\x18\x01 \x01(\tR\x05after"p\n\x17L'
    b'istDiscoveriesResponse\x12A'
    b'\n\rregistrations\x18\x01 \x03(\x0b2\x1b.'
    b'leasehold.v1.DiscoveryIn'
    b'foR\rregistrations\x12\x12\n\x04nex'
    b't\x18\x02 \x01(\tR\x04next"o\n\x11Registr'
    b'arsPayload\x12\x1c\n\tdiscarded\x18'
    b'\x01 \x01(\x08R\tdiscarded\x12<\n\nregi'
    b'strars\x18\x02 \x03(\x0b2\x1c.leasehold'
    b'.v1.FoundRegistrarR\nregi'
    b'strars"\xda\x03\n\x0fStoredDiscove'
    b'ry\x120\n\x06groups\x18\x01 \x01(\x0b2\x18.lea'
    b'sehold.v1.GroupNamesR\x06gr'
    b'oups\x12\x1a\n\x08locators\x18\x02 \x03(\tR\x08'
    b'locators\x128\n\x08listener\x18\x03 \x01'
    b'(\x0b2\x1c.leasehold.v1.Listen'
    b'erTargetR\x08listener\x12\x1a\n\x08ha'
    b'ndback\x18\x04 \x01(\x0cR\x08handback\x12\x16'
    b'\n\x06number\x18\x05 \x01(\x03R\x06number\x12/'
    b'\n\x05found\x18\x06 \x03(\x0b2\x19.leasehol'
    b'd.v1.StoredCoverR\x05found\x12'
    b'9\n\tdiscarded\x18\x07 \x03(\x0b2\x1b.lea'
    b'sehold.v1.StoredDiscardR'
    b'\tdiscarded\x127\n\x08returned\x18\x08'
    b' \x03(\x0b2\x1b.leasehold.v1.Stor'
    b'edDiscardR\x08returned\x12@\n\x0bu'
    b'ndelivered\x18\t \x03(\x0b2\x1e.lease'
    b'hold.v1.UndeliveredEvent'
    b'R\x0bundelivered\x12$\n\x0efound_b'
    b'y_group\x18\n \x03(\tR\x0cfoundByGr'
    b'oup"T\n\x0bStoredCover\x12\x0e\n\x02id'
    b'\x18\x01 \x01(\tR\x02id\x12\x19\n\x08by_group\x18\x02'
    b' \x01(\x08R\x07byGroup\x12\x1a\n\x08locator'
    b's\x18\x03 \x03(\x03R\x08locators"J\n\rSto'
    b'redDiscard\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02'
    b'id\x12\x14\n\x05times\x18\x02 \x01(\x03R\x05times'
    b'\x12\x13\n\x05at_ms\x18\x03 \x01(\x03R\x04atMs"D\n'
    b'\x10UndeliveredEvent\x12\x16\n\x06num'
    b'ber\x18\x01 \x01(\x03R\x06number\x12\x18\n\x07pay'
    b'load\x18\x02 \x01(\x0cR\x07payload"\x9b\x01\n\x0b'
    b'ServerReach\x120\n\x06groups\x18\x01 '
    b'\x01(\x0b2\x18.leasehold.v1.Group'
    b'NamesR\x06groups\x12\x1a\n\x08locator'
    b's\x18\x02 \x03(\tR\x08locators\x12>\n\nreg'
    b'istrars\x18\x03 \x03(\x0b2\x1e.leasehol'
    b'd.v1.ReachedRegistrarR\nr'
    b'egistrars"g\n\x10ReachedRegi'
    b'strar\x12\x1c\n\tregistrar\x18\x01 \x01(\x0c'
    b'R\tregistrar\x12\x19\n\x08by_group\x18'
    b'\x02 \x01(\x08R\x07byGroup\x12\x1a\n\x08locato'
    b'rs\x18\x03 \x03(\tR\x08locators*I\n\x0eIn'
    b'terestChange\x12\x10\n\x0cADD_INTE'
    b'REST\x10\x00\x12\x10\n\x0cSET_INTEREST\x10\x01'
    b'\x12\x13\n\x0fREMOVE_INTEREST\x10\x022\xd3\x04'
    b'\n\tDiscovery\x12[\n\x08Register\x12'
    b'&.leasehold.v1.RegisterD'
    b"iscoveryRequest\x1a'.leaseh"
    b'old.v1.RegisterDiscovery'
    b'Response\x12G\n\x04Show\x12".lease'
    b'hold.v1.ShowDiscoveryReq'
    b'uest\x1a\x1b.leasehold.v1.Disc'
    b'overyInfo\x12O\n\nRegistrars\x12'
    b'\x1f.leasehold.v1.Registrar'
    b'sRequest\x1a .leasehold.v1.'
    b'RegistrarsResponse\x12U\n\x0cCh'
    b'angeGroups\x12!.leasehold.v'
    b'1.ChangeGroupsRequest\x1a".'
    b'leasehold.v1.ChangeGroup'
    b'sResponse\x12[\n\x0eChangeLocat'
    b'ors\x12#.leasehold.v1.Chang'
    b'eLocatorsRequest\x1a$.lease'
    b'hold.v1.ChangeLocatorsRe'
    b'sponse\x12F\n\x07Discard\x12\x1c.leas'
    b'ehold.v1.DiscardRequest\x1a'
    b'\x1d.leasehold.v1.DiscardRe'
    b'sponse\x12S\n\x04List\x12$.leaseho'
    b'ld.v1.ListDiscoveriesReq'
    b'uest\x1a%.leasehold.v1.List'
    b'DiscoveriesResponseb\x06pro'
    b'to3'
)

GroupNames = message_class(DESCRIPTOR, "GroupNames")
RegisterDiscoveryRequest = message_class(DESCRIPTOR, "RegisterDiscoveryRequest")
RegisterDiscoveryResponse = message_class(DESCRIPTOR, "RegisterDiscoveryResponse")
ShowDiscoveryRequest = message_class(DESCRIPTOR, "ShowDiscoveryRequest")
DiscoveryInfo = message_class(DESCRIPTOR, "DiscoveryInfo")
RegistrarsRequest = message_class(DESCRIPTOR, "RegistrarsRequest")
RegistrarsResponse = message_class(DESCRIPTOR, "RegistrarsResponse")
FoundRegistrar = message_class(DESCRIPTOR, "FoundRegistrar")
ChangeGroupsRequest = message_class(DESCRIPTOR, "ChangeGroupsRequest")
ChangeGroupsResponse = message_class(DESCRIPTOR, "ChangeGroupsResponse")
ChangeLocatorsRequest = message_class(DESCRIPTOR, "ChangeLocatorsRequest")
ChangeLocatorsResponse = message_class(DESCRIPTOR, "ChangeLocatorsResponse")
DiscardRequest = message_class(DESCRIPTOR, "DiscardRequest")
DiscardResponse = message_class(DESCRIPTOR, "DiscardResponse")
ListDiscoveriesRequest = message_class(DESCRIPTOR, "ListDiscoveriesRequest")
ListDiscoveriesResponse = message_class(DESCRIPTOR, "ListDiscoveriesResponse")
RegistrarsPayload = message_class(DESCRIPTOR, "RegistrarsPayload")
StoredDiscovery = message_class(DESCRIPTOR, "StoredDiscovery")
StoredCover = message_class(DESCRIPTOR, "StoredCover")
StoredDiscard = message_class(DESCRIPTOR, "StoredDiscard")
UndeliveredEvent = message_class(DESCRIPTOR, "UndeliveredEvent")
ServerReach = message_class(DESCRIPTOR, "ServerReach")
ReachedRegistrar = message_class(DESCRIPTOR, "ReachedRegistrar")
ADD_INTEREST = 0
SET_INTEREST = 1
REMOVE_INTEREST = 2
