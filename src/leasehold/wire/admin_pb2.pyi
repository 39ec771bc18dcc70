# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/admin.proto: change that one.
from leasehold.wire import discovery_pb2 as _discovery_pb2
from leasehold.wire import registry_pb2 as _registry_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChangeMemberGroupsRequest(_message.Message):
    __slots__ = ("change", "groups")
    class Change(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ADD: _ClassVar[ChangeMemberGroupsRequest.Change]
        SET: _ClassVar[ChangeMemberGroupsRequest.Change]
        REMOVE: _ClassVar[ChangeMemberGroupsRequest.Change]
    ADD: ChangeMemberGroupsRequest.Change
    SET: ChangeMemberGroupsRequest.Change
    REMOVE: ChangeMemberGroupsRequest.Change
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    change: ChangeMemberGroupsRequest.Change
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, change: _Optional[_Union[ChangeMemberGroupsRequest.Change, str]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class MemberGroupsResponse(_message.Message):
    __slots__ = ("groups", "groups_number")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_NUMBER_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    groups_number: int
    def __init__(self, groups: _Optional[_Iterable[str]] = ..., groups_number: _Optional[int] = ...) -> None: ...

class JoinedLocators(_message.Message):
    __slots__ = ("locators",)
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    locators: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, locators: _Optional[_Iterable[str]] = ...) -> None: ...

class ShowServicesRequest(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: str
    def __init__(self, service: _Optional[str] = ...) -> None: ...

class ShowServicesResponse(_message.Message):
    __slots__ = ("services",)
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[AdministeredService]
    def __init__(self, services: _Optional[_Iterable[_Union[AdministeredService, _Mapping]]] = ...) -> None: ...

class AdministeredService(_message.Message):
    __slots__ = ("service", "id", "type", "groups", "locators", "attributes", "lease_bound_ms", "is_default_bound")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_BOUND_FIELD_NUMBER: _ClassVar[int]
    service: str
    id: str
    type: str
    groups: _discovery_pb2.GroupNames
    locators: _containers.RepeatedScalarFieldContainer[str]
    attributes: _containers.RepeatedCompositeFieldContainer[_registry_pb2.AttributeSet]
    lease_bound_ms: int
    is_default_bound: bool
    def __init__(self, service: _Optional[str] = ..., id: _Optional[str] = ..., type: _Optional[str] = ..., groups: _Optional[_Union[_discovery_pb2.GroupNames, _Mapping]] = ..., locators: _Optional[_Iterable[str]] = ..., attributes: _Optional[_Iterable[_Union[_registry_pb2.AttributeSet, _Mapping]]] = ..., lease_bound_ms: _Optional[int] = ..., is_default_bound: _Optional[bool] = ...) -> None: ...

class ChangeServiceRequest(_message.Message):
    __slots__ = ("service", "operation", "groups", "locators", "attributes", "lease_bound_ms")
    class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ADD: _ClassVar[ChangeServiceRequest.Operation]
        SET: _ClassVar[ChangeServiceRequest.Operation]
        REMOVE: _ClassVar[ChangeServiceRequest.Operation]
    ADD: ChangeServiceRequest.Operation
    SET: ChangeServiceRequest.Operation
    REMOVE: ChangeServiceRequest.Operation
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    service: str
    operation: ChangeServiceRequest.Operation
    groups: _discovery_pb2.GroupNames
    locators: JoinedLocators
    attributes: _registry_pb2.AttributeSets
    lease_bound_ms: int
    def __init__(self, service: _Optional[str] = ..., operation: _Optional[_Union[ChangeServiceRequest.Operation, str]] = ..., groups: _Optional[_Union[_discovery_pb2.GroupNames, _Mapping]] = ..., locators: _Optional[_Union[JoinedLocators, _Mapping]] = ..., attributes: _Optional[_Union[_registry_pb2.AttributeSets, _Mapping]] = ..., lease_bound_ms: _Optional[int] = ...) -> None: ...

class StoredServiceConfig(_message.Message):
    __slots__ = ("groups", "locators", "lease_bound_ms")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    LEASE_BOUND_MS_FIELD_NUMBER: _ClassVar[int]
    groups: _discovery_pb2.GroupNames
    locators: _containers.RepeatedScalarFieldContainer[str]
    lease_bound_ms: int
    def __init__(self, groups: _Optional[_Union[_discovery_pb2.GroupNames, _Mapping]] = ..., locators: _Optional[_Iterable[str]] = ..., lease_bound_ms: _Optional[int] = ...) -> None: ...
