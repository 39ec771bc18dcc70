# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/admin.proto: change that one.
"""Messages of `admin.proto`, in the private descriptor pool."""

from leasehold.wire import registry_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0badmin.proto\x12\x0cleasehold'
    b'.v1\x1a\x0eregistry.proto"\x15\n\x13M'
    b'emberGroupsRequest"\xa3\x01\n\x19C'
    b'hangeMemberGroupsRequest'
    b'\x12F\n\x06change\x18\x01 \x01(\x0e2..lease'
    b'hold.v1.ChangeMemberGrou'
    b'psRequest.ChangeR\x06change'
    b'\x12\x16\n\x06groups\x18\x02 \x03(\tR\x06groups'
    b'"&\n\x06Change\x12\x07\n\x03ADD\x10\x00\x12\x07\n\x03S'
    b'ET\x10\x01\x12\n\n\x06REMOVE\x10\x02"S\n\x14Memb'
    b'erGroupsResponse\x12\x16\n\x06grou'
    b'ps\x18\x01 \x03(\tR\x06groups\x12#\n\rgrou'
    b'ps_number\x18\x02 \x01(\x03R\x0cgroupsN'
    b'umber"6\n\x0cJoinedGroups\x12\x14\n'
    b'\x05names\x18\x01 \x03(\tR\x05names\x12\x10\n\x03a'
    b'll\x18\x02 \x01(\x08R\x03all",\n\x0eJoinedL'
    b'ocators\x12\x1a\n\x08locators\x18\x01 \x03('
    b'\tR\x08locators"/\n\x13ShowServi'
    b'cesRequest\x12\x18\n\x07service\x18\x01 '
    b'\x01(\tR\x07service"U\n\x14ShowServ'
    b'icesResponse\x12=\n\x08services'
    b'\x18\x01 \x03(\x0b2!.leasehold.v1.Ad'
    b'ministeredServiceR\x08servi'
    b'ces"\xaf\x02\n\x13AdministeredServ'
    b'ice\x12\x18\n\x07service\x18\x01 \x01(\tR\x07se'
    b'rvice\x12\x0e\n\x02id\x18\x02 \x01(\tR\x02id\x12\x12\n'
    b'\x04type\x18\x03 \x01(\tR\x04type\x122\n\x06gro'
    b'ups\x18\x04 \x01(\x0b2\x1a.leasehold.v1'
    b'.JoinedGroupsR\x06groups\x12\x1a\n'
    b'\x08locators\x18\x05 \x03(\tR\x08locator'
    b's\x12:\n\nattributes\x18\x06 \x03(\x0b2\x1a.'
    b'leasehold.v1.AttributeSe'
    b'tR\nattributes\x12$\n\x0elease_b'
    b'ound_ms\x18\x07 \x01(\x03R\x0cleaseBoun'
    b'dMs\x12(\n\x10is_default_bound\x18'
    b'\x08 \x01(\x08R\x0eisDefaultBound"\x88\x03'
    b'\n\x14ChangeServiceRequest\x12\x18'
    b'\n\x07service\x18\x01 \x01(\tR\x07service'
    b'\x12J\n\toperation\x18\x02 \x01(\x0e2,.le'
    b'asehold.v1.ChangeService'
    b'Request.OperationR\topera'
    b'tion\x124\n\x06groups\x18\x03 \x01(\x0b2\x1a.l'
    b'easehold.v1.JoinedGroups'
    b'H\x00R\x06groups\x12:\n\x08locators\x18\x04'
    b' \x01(\x0b2\x1c.leasehold.v1.Join'
    b'edLocatorsH\x00R\x08locators\x12='
    b'\n\nattributes\x18\x05 \x01(\x0b2\x1b.lea'
    b'sehold.v1.AttributeSetsH'
    b'\x00R\nattributes\x12&\n\x0elease_b'
    b'ound_ms\x18\x06 \x01(\x03H\x00R\x0cleaseBo'
    b'undMs")\n\tOperation\x12\x07\n\x03AD'
    b'D\x10\x00\x12\x07\n\x03SET\x10\x01\x12\n\n\x06REMOVE\x10\x02'
    b'B\x06\n\x04part"\x8b\x01\n\x13StoredServi'
    b'ceConfig\x122\n\x06groups\x18\x01 \x01(\x0b'
    b'2\x1a.leasehold.v1.JoinedGr'
    b'oupsR\x06groups\x12\x1a\n\x08locators'
    b'\x18\x02 \x03(\tR\x08locators\x12$\n\x0eleas'
    b'e_bound_ms\x18\x03 \x01(\x03R\x0cleaseB'
    b'oundMs2\xe1\x02\n\x05Admin\x12U\n\x0cMemb'
    b'erGroups\x12!.leasehold.v1.'
    b'MemberGroupsRequest\x1a".le'
    b'asehold.v1.MemberGroupsR'
    b'esponse\x12a\n\x12ChangeMemberG'
    b"roups\x12'.leasehold.v1.Cha"
    b'ngeMemberGroupsRequest\x1a"'
    b'.leasehold.v1.MemberGrou'
    b'psResponse\x12M\n\x04Show\x12!.lea'
    b'sehold.v1.ShowServicesRe'
    b'quest\x1a".leasehold.v1.Sho'
    b'wServicesResponse\x12O\n\x06Cha'
    b'nge\x12".leasehold.v1.Chang'
    b'eServiceRequest\x1a!.leaseh'
    b'old.v1.AdministeredServi'
    b'ceb\x06proto3'
)

MemberGroupsRequest = message_class(DESCRIPTOR, "MemberGroupsRequest")
ChangeMemberGroupsRequest = message_class(DESCRIPTOR, "ChangeMemberGroupsRequest")
MemberGroupsResponse = message_class(DESCRIPTOR, "MemberGroupsResponse")
JoinedGroups = message_class(DESCRIPTOR, "JoinedGroups")
JoinedLocators = message_class(DESCRIPTOR, "JoinedLocators")
ShowServicesRequest = message_class(DESCRIPTOR, "ShowServicesRequest")
ShowServicesResponse = message_class(DESCRIPTOR, "ShowServicesResponse")
AdministeredService = message_class(DESCRIPTOR, "AdministeredService")
ChangeServiceRequest = message_class(DESCRIPTOR, "ChangeServiceRequest")
StoredServiceConfig = message_class(DESCRIPTOR, "StoredServiceConfig")
