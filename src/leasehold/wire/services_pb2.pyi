# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/services.proto: change that one.
from leasehold.wire import leases_pb2 as _leases_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeasedRecord(_message.Message):
    __slots__ = ("end_ms", "term_ms", "lease_ttl_ms", "term_number")
    END_MS_FIELD_NUMBER: _ClassVar[int]
    TERM_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TERM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    end_ms: int
    term_ms: int
    lease_ttl_ms: int
    term_number: int
    def __init__(self, end_ms: _Optional[int] = ..., term_ms: _Optional[int] = ..., lease_ttl_ms: _Optional[int] = ..., term_number: _Optional[int] = ...) -> None: ...

class ServerRecord(_message.Message):
    __slots__ = ("server", "address")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    server: str
    address: str
    def __init__(self, server: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class StoredRegistration(_message.Message):
    __slots__ = ("number", "listener", "handback", "parameter_ms", "dropped", "told_term")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_MS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    TOLD_TERM_FIELD_NUMBER: _ClassVar[int]
    number: int
    listener: ListenerTarget
    handback: bytes
    parameter_ms: int
    dropped: int
    told_term: int
    def __init__(self, number: _Optional[int] = ..., listener: _Optional[_Union[ListenerTarget, _Mapping]] = ..., handback: _Optional[bytes] = ..., parameter_ms: _Optional[int] = ..., dropped: _Optional[int] = ..., told_term: _Optional[int] = ...) -> None: ...

class ListenerTarget(_message.Message):
    __slots__ = ("endpoint", "id")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    id: str
    def __init__(self, endpoint: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class StoredEvent(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...

class StoredMember(_message.Message):
    __slots__ = ("reference", "desired_end_ms", "renew_ms", "end_ms", "term_ms", "order")
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    DESIRED_END_MS_FIELD_NUMBER: _ClassVar[int]
    RENEW_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    TERM_MS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    reference: bytes
    desired_end_ms: int
    renew_ms: int
    end_ms: int
    term_ms: int
    order: int
    def __init__(self, reference: _Optional[bytes] = ..., desired_end_ms: _Optional[int] = ..., renew_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., term_ms: _Optional[int] = ..., order: _Optional[int] = ...) -> None: ...

class StoredMail(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: RemoteEvent
    def __init__(self, event: _Optional[_Union[RemoteEvent, _Mapping]] = ...) -> None: ...

class RemoteEvent(_message.Message):
    __slots__ = ("service", "source", "kind", "number", "handback", "payload")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    service: str
    source: str
    kind: int
    number: int
    handback: bytes
    payload: bytes
    def __init__(self, service: _Optional[str] = ..., source: _Optional[str] = ..., kind: _Optional[int] = ..., number: _Optional[int] = ..., handback: _Optional[bytes] = ..., payload: _Optional[bytes] = ...) -> None: ...
