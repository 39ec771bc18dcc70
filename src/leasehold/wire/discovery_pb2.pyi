# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/discovery.proto: change that one.
from leasehold.wire import services_pb2 as _services_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InterestChange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADD_INTEREST: _ClassVar[InterestChange]
    SET_INTEREST: _ClassVar[InterestChange]
    REMOVE_INTEREST: _ClassVar[InterestChange]
ADD_INTEREST: InterestChange
SET_INTEREST: InterestChange
REMOVE_INTEREST: InterestChange

class GroupNames(_message.Message):
    __slots__ = ("all", "names")
    ALL_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    all: bool
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, all: _Optional[bool] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterDiscoveryRequest(_message.Message):
    __slots__ = ("groups", "locators", "listener", "handback", "ttl_ms")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    groups: GroupNames
    locators: _containers.RepeatedScalarFieldContainer[str]
    listener: _services_pb2.ListenerTarget
    handback: bytes
    ttl_ms: int
    def __init__(self, groups: _Optional[_Union[GroupNames, _Mapping]] = ..., locators: _Optional[_Iterable[str]] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., handback: _Optional[bytes] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class RegisterDiscoveryResponse(_message.Message):
    __slots__ = ("id", "ttl_ms", "grantor")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    ttl_ms: int
    grantor: str
    def __init__(self, id: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., grantor: _Optional[str] = ...) -> None: ...

class ShowDiscoveryRequest(_message.Message):
    __slots__ = ("registration",)
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    registration: str
    def __init__(self, registration: _Optional[str] = ...) -> None: ...

class DiscoveryInfo(_message.Message):
    __slots__ = ("id", "remaining_ms", "grantor", "groups", "locators", "registrars", "number", "listener", "undelivered", "last_error")
    ID_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    REGISTRARS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERED_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    remaining_ms: int
    grantor: str
    groups: GroupNames
    locators: _containers.RepeatedScalarFieldContainer[str]
    registrars: int
    number: int
    listener: _services_pb2.ListenerTarget
    undelivered: int
    last_error: str
    def __init__(self, id: _Optional[str] = ..., remaining_ms: _Optional[int] = ..., grantor: _Optional[str] = ..., groups: _Optional[_Union[GroupNames, _Mapping]] = ..., locators: _Optional[_Iterable[str]] = ..., registrars: _Optional[int] = ..., number: _Optional[int] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., undelivered: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...

class RegistrarsRequest(_message.Message):
    __slots__ = ("registration", "after")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    registration: str
    after: str
    def __init__(self, registration: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class RegistrarsResponse(_message.Message):
    __slots__ = ("registrars", "next")
    REGISTRARS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    registrars: _containers.RepeatedCompositeFieldContainer[FoundRegistrar]
    next: str
    def __init__(self, registrars: _Optional[_Iterable[_Union[FoundRegistrar, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class FoundRegistrar(_message.Message):
    __slots__ = ("id", "groups", "registrar")
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    REGISTRAR_FIELD_NUMBER: _ClassVar[int]
    id: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    registrar: bytes
    def __init__(self, id: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., registrar: _Optional[bytes] = ...) -> None: ...

class ChangeGroupsRequest(_message.Message):
    __slots__ = ("registration", "change", "groups")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    registration: str
    change: InterestChange
    groups: GroupNames
    def __init__(self, registration: _Optional[str] = ..., change: _Optional[_Union[InterestChange, str]] = ..., groups: _Optional[_Union[GroupNames, _Mapping]] = ...) -> None: ...

class ChangeGroupsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChangeLocatorsRequest(_message.Message):
    __slots__ = ("registration", "change", "locators")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    registration: str
    change: InterestChange
    locators: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, registration: _Optional[str] = ..., change: _Optional[_Union[InterestChange, str]] = ..., locators: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeLocatorsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DiscardRequest(_message.Message):
    __slots__ = ("registration", "registrar")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    REGISTRAR_FIELD_NUMBER: _ClassVar[int]
    registration: str
    registrar: str
    def __init__(self, registration: _Optional[str] = ..., registrar: _Optional[str] = ...) -> None: ...

class DiscardResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDiscoveriesRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: str
    def __init__(self, after: _Optional[str] = ...) -> None: ...

class ListDiscoveriesResponse(_message.Message):
    __slots__ = ("registrations", "next")
    REGISTRATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    registrations: _containers.RepeatedCompositeFieldContainer[DiscoveryInfo]
    next: str
    def __init__(self, registrations: _Optional[_Iterable[_Union[DiscoveryInfo, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class RegistrarsPayload(_message.Message):
    __slots__ = ("discarded", "registrars")
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    REGISTRARS_FIELD_NUMBER: _ClassVar[int]
    discarded: bool
    registrars: _containers.RepeatedCompositeFieldContainer[FoundRegistrar]
    def __init__(self, discarded: _Optional[bool] = ..., registrars: _Optional[_Iterable[_Union[FoundRegistrar, _Mapping]]] = ...) -> None: ...

class StoredDiscovery(_message.Message):
    __slots__ = ("groups", "locators", "listener", "handback", "number", "found", "discarded", "returned", "undelivered", "found_by_group")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERED_FIELD_NUMBER: _ClassVar[int]
    FOUND_BY_GROUP_FIELD_NUMBER: _ClassVar[int]
    groups: GroupNames
    locators: _containers.RepeatedScalarFieldContainer[str]
    listener: _services_pb2.ListenerTarget
    handback: bytes
    number: int
    found: _containers.RepeatedCompositeFieldContainer[StoredCover]
    discarded: _containers.RepeatedCompositeFieldContainer[StoredDiscard]
    returned: _containers.RepeatedCompositeFieldContainer[StoredDiscard]
    undelivered: _containers.RepeatedCompositeFieldContainer[UndeliveredEvent]
    found_by_group: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Union[GroupNames, _Mapping]] = ..., locators: _Optional[_Iterable[str]] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., handback: _Optional[bytes] = ..., number: _Optional[int] = ..., found: _Optional[_Iterable[_Union[StoredCover, _Mapping]]] = ..., discarded: _Optional[_Iterable[_Union[StoredDiscard, _Mapping]]] = ..., returned: _Optional[_Iterable[_Union[StoredDiscard, _Mapping]]] = ..., undelivered: _Optional[_Iterable[_Union[UndeliveredEvent, _Mapping]]] = ..., found_by_group: _Optional[_Iterable[str]] = ...) -> None: ...

class StoredCover(_message.Message):
    __slots__ = ("id", "by_group", "locators")
    ID_FIELD_NUMBER: _ClassVar[int]
    BY_GROUP_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    id: str
    by_group: bool
    locators: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., by_group: _Optional[bool] = ..., locators: _Optional[_Iterable[int]] = ...) -> None: ...

class StoredDiscard(_message.Message):
    __slots__ = ("id", "times", "at_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    times: int
    at_ms: int
    def __init__(self, id: _Optional[str] = ..., times: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class UndeliveredEvent(_message.Message):
    __slots__ = ("number", "payload")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    number: int
    payload: bytes
    def __init__(self, number: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ServerReach(_message.Message):
    __slots__ = ("groups", "locators", "registrars")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    REGISTRARS_FIELD_NUMBER: _ClassVar[int]
    groups: GroupNames
    locators: _containers.RepeatedScalarFieldContainer[str]
    registrars: _containers.RepeatedCompositeFieldContainer[ReachedRegistrar]
    def __init__(self, groups: _Optional[_Union[GroupNames, _Mapping]] = ..., locators: _Optional[_Iterable[str]] = ..., registrars: _Optional[_Iterable[_Union[ReachedRegistrar, _Mapping]]] = ...) -> None: ...

class ReachedRegistrar(_message.Message):
    __slots__ = ("registrar", "by_group", "locators")
    REGISTRAR_FIELD_NUMBER: _ClassVar[int]
    BY_GROUP_FIELD_NUMBER: _ClassVar[int]
    LOCATORS_FIELD_NUMBER: _ClassVar[int]
    registrar: bytes
    by_group: bool
    locators: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, registrar: _Optional[bytes] = ..., by_group: _Optional[bool] = ..., locators: _Optional[_Iterable[str]] = ...) -> None: ...
