# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/leases.proto: change that one.
from leasehold.wire import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[EndReason]
    EXPIRED: _ClassVar[EndReason]
    REVOKED: _ClassVar[EndReason]
UNKNOWN: EndReason
EXPIRED: EndReason
REVOKED: EndReason

class GrantRequest(_message.Message):
    __slots__ = ("ttl_ms", "id", "holder", "policy", "resource")
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ttl_ms: int
    id: int
    holder: str
    policy: str
    resource: str
    def __init__(self, ttl_ms: _Optional[int] = ..., id: _Optional[int] = ..., holder: _Optional[str] = ..., policy: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class GrantResponse(_message.Message):
    __slots__ = ("header", "id", "ttl_ms", "cookie", "grantor")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    header: _rpc_pb2.ResponseHeader
    id: int
    ttl_ms: int
    cookie: bytes
    grantor: str
    def __init__(self, header: _Optional[_Union[_rpc_pb2.ResponseHeader, _Mapping]] = ..., id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., cookie: _Optional[bytes] = ..., grantor: _Optional[str] = ...) -> None: ...

class RenewAllRequest(_message.Message):
    __slots__ = ("ids", "cookies", "ttl_ms", "ttls_ms", "grantor")
    IDS_FIELD_NUMBER: _ClassVar[int]
    COOKIES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TTLS_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    cookies: _containers.RepeatedScalarFieldContainer[bytes]
    ttl_ms: int
    ttls_ms: _containers.RepeatedScalarFieldContainer[int]
    grantor: str
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., cookies: _Optional[_Iterable[bytes]] = ..., ttl_ms: _Optional[int] = ..., ttls_ms: _Optional[_Iterable[int]] = ..., grantor: _Optional[str] = ...) -> None: ...

class RenewAllResponse(_message.Message):
    __slots__ = ("header", "ttl_ms", "others", "others_ttl_ms", "unknown", "unknown_reasons", "failures")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_REASONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    header: _rpc_pb2.ResponseHeader
    ttl_ms: int
    others: _containers.RepeatedScalarFieldContainer[int]
    others_ttl_ms: _containers.RepeatedScalarFieldContainer[int]
    unknown: _containers.RepeatedScalarFieldContainer[int]
    unknown_reasons: _containers.RepeatedScalarFieldContainer[EndReason]
    failures: _containers.RepeatedCompositeFieldContainer[LeaseFailure]
    def __init__(self, header: _Optional[_Union[_rpc_pb2.ResponseHeader, _Mapping]] = ..., ttl_ms: _Optional[int] = ..., others: _Optional[_Iterable[int]] = ..., others_ttl_ms: _Optional[_Iterable[int]] = ..., unknown: _Optional[_Iterable[int]] = ..., unknown_reasons: _Optional[_Iterable[_Union[EndReason, str]]] = ..., failures: _Optional[_Iterable[_Union[LeaseFailure, _Mapping]]] = ...) -> None: ...

class LeaseFailure(_message.Message):
    __slots__ = ("place", "status", "message", "denied")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    place: int
    status: int
    message: str
    denied: bool
    def __init__(self, place: _Optional[int] = ..., status: _Optional[int] = ..., message: _Optional[str] = ..., denied: _Optional[bool] = ...) -> None: ...

class RevokeAllRequest(_message.Message):
    __slots__ = ("ids", "cookies", "grantor")
    IDS_FIELD_NUMBER: _ClassVar[int]
    COOKIES_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    cookies: _containers.RepeatedScalarFieldContainer[bytes]
    grantor: str
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., cookies: _Optional[_Iterable[bytes]] = ..., grantor: _Optional[str] = ...) -> None: ...

class RevokeAllResponse(_message.Message):
    __slots__ = ("header", "unknown", "unknown_reasons", "failures")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_REASONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    header: _rpc_pb2.ResponseHeader
    unknown: _containers.RepeatedScalarFieldContainer[int]
    unknown_reasons: _containers.RepeatedScalarFieldContainer[EndReason]
    failures: _containers.RepeatedCompositeFieldContainer[LeaseFailure]
    def __init__(self, header: _Optional[_Union[_rpc_pb2.ResponseHeader, _Mapping]] = ..., unknown: _Optional[_Iterable[int]] = ..., unknown_reasons: _Optional[_Iterable[_Union[EndReason, str]]] = ..., failures: _Optional[_Iterable[_Union[LeaseFailure, _Mapping]]] = ...) -> None: ...

class ShowRequest(_message.Message):
    __slots__ = ("id", "keys")
    ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    id: int
    keys: bool
    def __init__(self, id: _Optional[int] = ..., keys: _Optional[bool] = ...) -> None: ...

class ShowResponse(_message.Message):
    __slots__ = ("header", "lease", "reason", "keys")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    header: _rpc_pb2.ResponseHeader
    lease: ListedLease
    reason: EndReason
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[_rpc_pb2.ResponseHeader, _Mapping]] = ..., lease: _Optional[_Union[ListedLease, _Mapping]] = ..., reason: _Optional[_Union[EndReason, str]] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "holder", "key_prefix")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: bytes
    holder: str
    key_prefix: bytes
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ..., holder: _Optional[str] = ..., key_prefix: _Optional[bytes] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("header", "leases", "next_page_token")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    header: _rpc_pb2.ResponseHeader
    leases: _containers.RepeatedCompositeFieldContainer[ListedLease]
    next_page_token: bytes
    def __init__(self, header: _Optional[_Union[_rpc_pb2.ResponseHeader, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[ListedLease, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class ListedLease(_message.Message):
    __slots__ = ("id", "ttl_ms", "remaining_ms", "keys", "holder")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_ms: int
    remaining_ms: int
    keys: int
    holder: str
    def __init__(self, id: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., keys: _Optional[int] = ..., holder: _Optional[str] = ...) -> None: ...

class WatchLeasesRequest(_message.Message):
    __slots__ = ("ids", "holder", "key_prefix", "renewals")
    IDS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    RENEWALS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    holder: str
    key_prefix: bytes
    renewals: bool
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., holder: _Optional[str] = ..., key_prefix: _Optional[bytes] = ..., renewals: _Optional[bool] = ...) -> None: ...

class WatchLeasesResponse(_message.Message):
    __slots__ = ("header", "created", "lagged", "events")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    LAGGED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    header: _rpc_pb2.ResponseHeader
    created: bool
    lagged: int
    events: _containers.RepeatedCompositeFieldContainer[LeaseEvent]
    def __init__(self, header: _Optional[_Union[_rpc_pb2.ResponseHeader, _Mapping]] = ..., created: _Optional[bool] = ..., lagged: _Optional[int] = ..., events: _Optional[_Iterable[_Union[LeaseEvent, _Mapping]]] = ...) -> None: ...

class LeaseEvent(_message.Message):
    __slots__ = ("kind", "id", "holder", "ttl_ms", "keys", "keys_count", "revision")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GRANTED: _ClassVar[LeaseEvent.Kind]
        RENEWED: _ClassVar[LeaseEvent.Kind]
        EXPIRED: _ClassVar[LeaseEvent.Kind]
        REVOKED: _ClassVar[LeaseEvent.Kind]
    GRANTED: LeaseEvent.Kind
    RENEWED: LeaseEvent.Kind
    EXPIRED: LeaseEvent.Kind
    REVOKED: LeaseEvent.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEYS_COUNT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    kind: LeaseEvent.Kind
    id: int
    holder: str
    ttl_ms: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    keys_count: int
    revision: int
    def __init__(self, kind: _Optional[_Union[LeaseEvent.Kind, str]] = ..., id: _Optional[int] = ..., holder: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., keys_count: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...
