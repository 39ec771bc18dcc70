# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/registry.proto: change that one.
from leasehold.wire import services_pb2 as _services_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Health(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PASSING: _ClassVar[Health]
    FAILING: _ClassVar[Health]
    MAINTENANCE: _ClassVar[Health]

class Transition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NO_TRANSITION: _ClassVar[Transition]
    MATCH_NOMATCH: _ClassVar[Transition]
    NOMATCH_MATCH: _ClassVar[Transition]
    MATCH_MATCH: _ClassVar[Transition]
PASSING: Health
FAILING: Health
MAINTENANCE: Health
NO_TRANSITION: Transition
MATCH_NOMATCH: Transition
NOMATCH_MATCH: Transition
MATCH_MATCH: Transition

class ServiceType(_message.Message):
    __slots__ = ("name", "bases")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BASES_FIELD_NUMBER: _ClassVar[int]
    name: str
    bases: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., bases: _Optional[_Iterable[str]] = ...) -> None: ...

class AttributeSet(_message.Message):
    __slots__ = ("kind", "bases", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASES_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    bases: _containers.RepeatedScalarFieldContainer[str]
    fields: _containers.ScalarMap[str, str]
    def __init__(self, kind: _Optional[str] = ..., bases: _Optional[_Iterable[str]] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ServiceDescriptor(_message.Message):
    __slots__ = ("type", "encoding", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    encoding: str
    data: bytes
    def __init__(self, type: _Optional[str] = ..., encoding: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class ServiceItem(_message.Message):
    __slots__ = ("id", "descriptor", "types", "attributes", "endpoint", "health")
    ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    id: str
    descriptor: ServiceDescriptor
    types: _containers.RepeatedCompositeFieldContainer[ServiceType]
    attributes: _containers.RepeatedCompositeFieldContainer[AttributeSet]
    endpoint: str
    health: Health
    def __init__(self, id: _Optional[str] = ..., descriptor: _Optional[_Union[ServiceDescriptor, _Mapping]] = ..., types: _Optional[_Iterable[_Union[ServiceType, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[AttributeSet, _Mapping]]] = ..., endpoint: _Optional[str] = ..., health: _Optional[_Union[Health, str]] = ...) -> None: ...

class StoredItem(_message.Message):
    __slots__ = ("item", "registration", "ttl_ms")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    item: bytes
    registration: str
    ttl_ms: int
    def __init__(self, item: _Optional[bytes] = ..., registration: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ItemTemplate(_message.Message):
    __slots__ = ("id", "types", "attributes")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    types: _containers.RepeatedCompositeFieldContainer[ServiceType]
    attributes: _containers.RepeatedCompositeFieldContainer[AttributeSet]
    def __init__(self, id: _Optional[str] = ..., types: _Optional[_Iterable[_Union[ServiceType, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[AttributeSet, _Mapping]]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegistrarInfo(_message.Message):
    __slots__ = ("id", "groups", "groups_number", "endpoints", "cluster")
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    id: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    groups_number: int
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    cluster: str
    def __init__(self, id: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., groups_number: _Optional[int] = ..., endpoints: _Optional[_Iterable[str]] = ..., cluster: _Optional[str] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("item", "ttl_ms", "lease")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    item: ServiceItem
    ttl_ms: int
    lease: int
    def __init__(self, item: _Optional[_Union[ServiceItem, _Mapping]] = ..., ttl_ms: _Optional[int] = ..., lease: _Optional[int] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("id", "registration", "ttl_ms", "grantor", "cookie")
    ID_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    id: str
    registration: str
    ttl_ms: int
    grantor: str
    cookie: str
    def __init__(self, id: _Optional[str] = ..., registration: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., grantor: _Optional[str] = ..., cookie: _Optional[str] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("template", "limit", "one", "passing", "stale", "after", "revision")
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ONE_FIELD_NUMBER: _ClassVar[int]
    PASSING_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    template: ItemTemplate
    limit: int
    one: bool
    passing: bool
    stale: bool
    after: str
    revision: int
    def __init__(self, template: _Optional[_Union[ItemTemplate, _Mapping]] = ..., limit: _Optional[int] = ..., one: _Optional[bool] = ..., passing: _Optional[bool] = ..., stale: _Optional[bool] = ..., after: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("items", "total", "revision", "next")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[bytes]
    total: int
    revision: int
    next: str
    def __init__(self, items: _Optional[_Iterable[bytes]] = ..., total: _Optional[int] = ..., revision: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class AttributeUpdate(_message.Message):
    __slots__ = ("template", "update")
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    template: AttributeSet
    update: AttributeSet
    def __init__(self, template: _Optional[_Union[AttributeSet, _Mapping]] = ..., update: _Optional[_Union[AttributeSet, _Mapping]] = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("id", "registration", "add", "set", "modify", "health")
    ID_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    MODIFY_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    id: str
    registration: str
    add: AttributeSets
    set: AttributeSets
    modify: AttributeUpdates
    health: Health
    def __init__(self, id: _Optional[str] = ..., registration: _Optional[str] = ..., add: _Optional[_Union[AttributeSets, _Mapping]] = ..., set: _Optional[_Union[AttributeSets, _Mapping]] = ..., modify: _Optional[_Union[AttributeUpdates, _Mapping]] = ..., health: _Optional[_Union[Health, str]] = ...) -> None: ...

class AttributeSets(_message.Message):
    __slots__ = ("sets",)
    SETS_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[AttributeSet]
    def __init__(self, sets: _Optional[_Iterable[_Union[AttributeSet, _Mapping]]] = ...) -> None: ...

class AttributeUpdates(_message.Message):
    __slots__ = ("updates",)
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[AttributeUpdate]
    def __init__(self, updates: _Optional[_Iterable[_Union[AttributeUpdate, _Mapping]]] = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestEventsRequest(_message.Message):
    __slots__ = ("template", "transitions", "listener", "handback", "ttl_ms")
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    template: ItemTemplate
    transitions: int
    listener: _services_pb2.ListenerTarget
    handback: bytes
    ttl_ms: int
    def __init__(self, template: _Optional[_Union[ItemTemplate, _Mapping]] = ..., transitions: _Optional[int] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., handback: _Optional[bytes] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class RequestEventsResponse(_message.Message):
    __slots__ = ("id", "ttl_ms", "grantor", "number")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    id: str
    ttl_ms: int
    grantor: str
    number: int
    def __init__(self, id: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., grantor: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class ItemEvent(_message.Message):
    __slots__ = ("transition", "id", "item", "revision")
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    transition: Transition
    id: str
    item: bytes
    revision: int
    def __init__(self, transition: _Optional[_Union[Transition, str]] = ..., id: _Optional[str] = ..., item: _Optional[bytes] = ..., revision: _Optional[int] = ...) -> None: ...

class StoredEventRequest(_message.Message):
    __slots__ = ("template", "transitions", "listener", "handback")
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    TRANSITIONS_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    template: ItemTemplate
    transitions: int
    listener: _services_pb2.ListenerTarget
    handback: bytes
    def __init__(self, template: _Optional[_Union[ItemTemplate, _Mapping]] = ..., transitions: _Optional[int] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., handback: _Optional[bytes] = ...) -> None: ...

class StoredEventProgress(_message.Message):
    __slots__ = ("number", "revision")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    number: int
    revision: int
    def __init__(self, number: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class WatchItemsRequest(_message.Message):
    __slots__ = ("template", "passing")
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PASSING_FIELD_NUMBER: _ClassVar[int]
    template: ItemTemplate
    passing: bool
    def __init__(self, template: _Optional[_Union[ItemTemplate, _Mapping]] = ..., passing: _Optional[bool] = ...) -> None: ...

class WatchItemsResponse(_message.Message):
    __slots__ = ("items", "is_complete", "changes", "revision")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[bytes]
    is_complete: bool
    changes: _containers.RepeatedCompositeFieldContainer[ItemEvent]
    revision: int
    def __init__(self, items: _Optional[_Iterable[bytes]] = ..., is_complete: _Optional[bool] = ..., changes: _Optional[_Iterable[_Union[ItemEvent, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class BrowseRequest(_message.Message):
    __slots__ = ("template", "subject", "prefix", "index", "field")
    class Subject(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPES: _ClassVar[BrowseRequest.Subject]
        ATTRIBUTE_KINDS: _ClassVar[BrowseRequest.Subject]
        FIELD_VALUES: _ClassVar[BrowseRequest.Subject]
    TYPES: BrowseRequest.Subject
    ATTRIBUTE_KINDS: BrowseRequest.Subject
    FIELD_VALUES: BrowseRequest.Subject
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    template: ItemTemplate
    subject: BrowseRequest.Subject
    prefix: str
    index: int
    field: str
    def __init__(self, template: _Optional[_Union[ItemTemplate, _Mapping]] = ..., subject: _Optional[_Union[BrowseRequest.Subject, str]] = ..., prefix: _Optional[str] = ..., index: _Optional[int] = ..., field: _Optional[str] = ...) -> None: ...

class BrowseResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, found: _Optional[_Iterable[str]] = ...) -> None: ...
