# fmt: off
# ruff: noqa: E501, F401, RUF100
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/admin.proto: change that one.
"""Messages of `admin.proto`, in the private descriptor pool."""

from leasehold.wire import discovery_pb2, registry_pb2
from leasehold.wire.pool import add_file, message_class

DESCRIPTOR = add_file(
    b'\n\x0badmin.proto\x12\x0cleasehold'
    b'.v1\x1a\x0fdiscovery.proto\x1a\x0ere'
    b'gistry.proto"\x15\n\x13MemberGr'
    b'oupsRequest"\xa3\x01\n\x19ChangeMe'
    b'mberGroupsRequest\x12F\n\x06cha'
    b'nge\x18\x01 \x01(\x0e2..leasehold.v1'
    b'.ChangeMemberGroupsReque'
    b'st.ChangeR\x06change\x12\x16\n\x06gro'
    b'ups\x18\x02 \x03(\tR\x06groups"&\n\x06Cha'
    b'nge\x12\x07\n\x03ADD\x10\x00\x12\x07\n\x03SET\x10\x01\x12\n\n'
    b'\x06REMOVE\x10\x02"S\n\x14MemberGroup'
    b'sResponse\x12\x16\n\x06groups\x18\x01 \x03('
    b'\tR\x06groups\x12#\n\rgroups_numb'
    b'er\x18\x02 \x01(\x03R\x0cgroupsNumber",'
    b'\n\x0eJoinedLocators\x12\x1a\n\x08loca'
    b'tors\x18\x01 \x03(\tR\x08locators"/\n\x13'
    b'ShowServicesRequest\x12\x18\n\x07s'
    b'ervice\x18\x01 \x01(\tR\x07service"U\n'
    b'\x14ShowServicesResponse\x12=\n'
    b'\x08services\x18\x01 \x03(\x0b2!.leaseh'
    b'old.v1.AdministeredServi'
    b'ceR\x08services"\xad\x02\n\x13Adminis'
    b'teredService\x12\x18\n\x07service\x18'
    b'\x01 \x01(\tR\x07service\x12\x0e\n\x02id\x18\x02 \x01'
    b'(\tR\x02id\x12\x12\n\x04type\x18\x03 \x01(\tR\x04ty'
    b'pe\x120\n\x06groups\x18\x04 \x01(\x0b2\x18.lea'
    b'sehold.v1.GroupNamesR\x06gr'
    b'oups\x12\x1a\n\x08locators\x18\x05 \x03(\tR\x08'
    b'locators\x12:\n\nattributes\x18\x06'
    b' \x03(\x0b2\x1a.leasehold.v1.Attr'
    b'ibuteSetR\nattributes\x12$\n\x0e'
    b'lease_bound_ms\x18\x07 \x01(\x03R\x0cle'
    b'aseBoundMs\x12(\n\x10is_default'
    b'_bound\x18\x08 \x01(\x08R\x0eisDefaultB'
    b'ound"\x86\x03\n\x14ChangeServiceRe'
    b'quest\x12\x18\n\x07service\x18\x01 \x01(\tR\x07'
    b'service\x12J\n\toperation\x18\x02 \x01'
    b'(\x0e2,.leasehold.v1.Change'
    b'ServiceRequest.Operation'
    b'R\toperation\x122\n\x06groups\x18\x03 '
    b'\x01(\x0b2\x18.leasehold.v1.Group'
    b'NamesH\x00R\x06groups\x12:\n\x08locat'
    b'ors\x18\x04 \x01(\x0b2\x1c.leasehold.v1'
    b'.JoinedLocatorsH\x00R\x08locat'
    b'ors\x12=\n\nattributes\x18\x05 \x01(\x0b2'
    b'\x1b.leasehold.v1.Attribute'
    b'SetsH\x00R\nattributes\x12&\n\x0ele'
    b'ase_bound_ms\x18\x06 \x01(\x03H\x00R\x0cle'
    b'aseBoundMs")\n\tOperation\x12'
    b'\x07\n\x03ADD\x10\x00\x12\x07\n\x03SET\x10\x01\x12\n\n\x06REM'
    b'OVE\x10\x02B\x06\n\x04part"\x89\x01\n\x13Stored'
    b'ServiceConfig\x120\n\x06groups\x18'
    b'\x01 \x01(\x0b2\x18.leasehold.v1.Gro'
    b'upNamesR\x06groups\x12\x1a\n\x08locat'
    b'ors\x18\x02 \x03(\tR\x08locators\x12$\n\x0el'
    b'ease_bound_ms\x18\x03 \x01(\x03R\x0clea'
    b'seBoundMs2\xe1\x02\n\x05Admin\x12U\n\x0cM'
    b'emberGroups\x12!.leasehold.'
    b'v1.MemberGroupsRequest\x1a"'
    b'.leasehold.v1.MemberGrou'
    b'psResponse\x12a\n\x12ChangeMemb'
    b"erGroups\x12'.leasehold.v1."
    b'ChangeMemberGroupsReques'
    b't\x1a".leasehold.v1.MemberG'
    b'roupsResponse\x12M\n\x04Show\x12!.'
    b'leasehold.v1.ShowService'
    b'sRequest\x1a".leasehold.v1.'
    b'ShowServicesResponse\x12O\n\x06'
    b'Change\x12".leasehold.v1.Ch'
    b'angeServiceRequest\x1a!.lea'
    b'sehold.v1.AdministeredSe'
    b'rviceb\x06proto3'
)

MemberGroupsRequest = message_class(DESCRIPTOR, "MemberGroupsRequest")
ChangeMemberGroupsRequest = message_class(DESCRIPTOR, "ChangeMemberGroupsRequest")
MemberGroupsResponse = message_class(DESCRIPTOR, "MemberGroupsResponse")
JoinedLocators = message_class(DESCRIPTOR, "JoinedLocators")
ShowServicesRequest = message_class(DESCRIPTOR, "ShowServicesRequest")
ShowServicesResponse = message_class(DESCRIPTOR, "ShowServicesResponse")
AdministeredService = message_class(DESCRIPTOR, "AdministeredService")
ChangeServiceRequest = message_class(DESCRIPTOR, "ChangeServiceRequest")
StoredServiceConfig = message_class(DESCRIPTOR, "StoredServiceConfig")
