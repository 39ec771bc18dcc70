# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/renewal.proto: change that one.
from leasehold.wire import services_pb2 as _services_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN_EVENT: _ClassVar[SetEventKind]
    EXPIRATION_WARNING: _ClassVar[SetEventKind]
    RENEWAL_FAILURE: _ClassVar[SetEventKind]
UNKNOWN_EVENT: SetEventKind
EXPIRATION_WARNING: SetEventKind
RENEWAL_FAILURE: SetEventKind

class LeaseReference(_message.Message):
    __slots__ = ("kind", "grantor", "id", "cookie", "endpoints", "credentials")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN_KIND: _ClassVar[LeaseReference.Kind]
        LEASEHOLD: _ClassVar[LeaseReference.Kind]
        ETCD: _ClassVar[LeaseReference.Kind]
    UNKNOWN_KIND: LeaseReference.Kind
    LEASEHOLD: LeaseReference.Kind
    ETCD: LeaseReference.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    kind: LeaseReference.Kind
    grantor: str
    id: int
    cookie: bytes
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    credentials: str
    def __init__(self, kind: _Optional[_Union[LeaseReference.Kind, str]] = ..., grantor: _Optional[str] = ..., id: _Optional[int] = ..., cookie: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[str]] = ..., credentials: _Optional[str] = ...) -> None: ...

class CreateSetRequest(_message.Message):
    __slots__ = ("ttl_ms",)
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ttl_ms: int
    def __init__(self, ttl_ms: _Optional[int] = ...) -> None: ...

class CreateSetResponse(_message.Message):
    __slots__ = ("id", "ttl_ms", "grantor")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    ttl_ms: int
    grantor: str
    def __init__(self, id: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., grantor: _Optional[str] = ...) -> None: ...

class ShowSetRequest(_message.Message):
    __slots__ = ("set",)
    SET_FIELD_NUMBER: _ClassVar[int]
    set: str
    def __init__(self, set: _Optional[str] = ...) -> None: ...

class SetInfo(_message.Message):
    __slots__ = ("id", "remaining_ms", "members", "listeners", "last_error", "grantor")
    ID_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    remaining_ms: int
    members: int
    listeners: _containers.RepeatedCompositeFieldContainer[ListenerInfo]
    last_error: str
    grantor: str
    def __init__(self, id: _Optional[str] = ..., remaining_ms: _Optional[int] = ..., members: _Optional[int] = ..., listeners: _Optional[_Iterable[_Union[ListenerInfo, _Mapping]]] = ..., last_error: _Optional[str] = ..., grantor: _Optional[str] = ...) -> None: ...

class ListenerInfo(_message.Message):
    __slots__ = ("kind", "number", "listener", "undelivered", "last_error")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    UNDELIVERED_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    kind: SetEventKind
    number: int
    listener: _services_pb2.ListenerTarget
    undelivered: int
    last_error: str
    def __init__(self, kind: _Optional[_Union[SetEventKind, str]] = ..., number: _Optional[int] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., undelivered: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...

class RenewForRequest(_message.Message):
    __slots__ = ("set", "reference", "remaining_ms", "term_ms", "desired_ms", "renew_ms")
    SET_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    TERM_MS_FIELD_NUMBER: _ClassVar[int]
    DESIRED_MS_FIELD_NUMBER: _ClassVar[int]
    RENEW_MS_FIELD_NUMBER: _ClassVar[int]
    set: str
    reference: bytes
    remaining_ms: int
    term_ms: int
    desired_ms: int
    renew_ms: int
    def __init__(self, set: _Optional[str] = ..., reference: _Optional[bytes] = ..., remaining_ms: _Optional[int] = ..., term_ms: _Optional[int] = ..., desired_ms: _Optional[int] = ..., renew_ms: _Optional[int] = ...) -> None: ...

class RenewForResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("set", "reference")
    SET_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    set: str
    reference: bytes
    def __init__(self, set: _Optional[str] = ..., reference: _Optional[bytes] = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: SetMember
    def __init__(self, member: _Optional[_Union[SetMember, _Mapping]] = ...) -> None: ...

class SetMember(_message.Message):
    __slots__ = ("reference", "remaining_ms", "term_ms")
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    TERM_MS_FIELD_NUMBER: _ClassVar[int]
    reference: bytes
    remaining_ms: int
    term_ms: int
    def __init__(self, reference: _Optional[bytes] = ..., remaining_ms: _Optional[int] = ..., term_ms: _Optional[int] = ...) -> None: ...

class MembersRequest(_message.Message):
    __slots__ = ("set", "page_token")
    SET_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    set: str
    page_token: bytes
    def __init__(self, set: _Optional[str] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class MembersResponse(_message.Message):
    __slots__ = ("members", "next_page_token")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[SetMember]
    next_page_token: bytes
    def __init__(self, members: _Optional[_Iterable[_Union[SetMember, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class SetListenerRequest(_message.Message):
    __slots__ = ("set", "kind", "listener", "handback", "min_warning_ms")
    SET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    MIN_WARNING_MS_FIELD_NUMBER: _ClassVar[int]
    set: str
    kind: SetEventKind
    listener: _services_pb2.ListenerTarget
    handback: bytes
    min_warning_ms: int
    def __init__(self, set: _Optional[str] = ..., kind: _Optional[_Union[SetEventKind, str]] = ..., listener: _Optional[_Union[_services_pb2.ListenerTarget, _Mapping]] = ..., handback: _Optional[bytes] = ..., min_warning_ms: _Optional[int] = ...) -> None: ...

class SetListenerResponse(_message.Message):
    __slots__ = ("number", "remaining_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    remaining_ms: int
    def __init__(self, number: _Optional[int] = ..., remaining_ms: _Optional[int] = ...) -> None: ...

class ClearListenerRequest(_message.Message):
    __slots__ = ("set", "kind")
    SET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    set: str
    kind: SetEventKind
    def __init__(self, set: _Optional[str] = ..., kind: _Optional[_Union[SetEventKind, str]] = ...) -> None: ...

class ClearListenerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSetsRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: str
    def __init__(self, after: _Optional[str] = ...) -> None: ...

class ListSetsResponse(_message.Message):
    __slots__ = ("sets", "next")
    SETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[SetInfo]
    next: str
    def __init__(self, sets: _Optional[_Iterable[_Union[SetInfo, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class WarningPayload(_message.Message):
    __slots__ = ("remaining_ms", "end_ms")
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    remaining_ms: int
    end_ms: int
    def __init__(self, remaining_ms: _Optional[int] = ..., end_ms: _Optional[int] = ...) -> None: ...

class FailurePayload(_message.Message):
    __slots__ = ("reference", "end_ms", "error")
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    reference: bytes
    end_ms: int
    error: RenewalError
    def __init__(self, reference: _Optional[bytes] = ..., end_ms: _Optional[int] = ..., error: _Optional[_Union[RenewalError, _Mapping]] = ...) -> None: ...

class RenewalError(_message.Message):
    __slots__ = ("class_name", "status", "message")
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    status: int
    message: str
    def __init__(self, class_name: _Optional[str] = ..., status: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
