# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/events.proto: change that one.
from leasehold.wire import services_pb2 as _services_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NotifyRequest(_message.Message):
    __slots__ = ("listener", "events")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    listener: str
    events: _containers.RepeatedCompositeFieldContainer[_services_pb2.RemoteEvent]
    def __init__(self, listener: _Optional[str] = ..., events: _Optional[_Iterable[_Union[_services_pb2.RemoteEvent, _Mapping]]] = ...) -> None: ...

class NotifyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateMailboxRequest(_message.Message):
    __slots__ = ("ttl_ms",)
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ttl_ms: int
    def __init__(self, ttl_ms: _Optional[int] = ...) -> None: ...

class CreateMailboxResponse(_message.Message):
    __slots__ = ("id", "ttl_ms", "grantor")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    ttl_ms: int
    grantor: str
    def __init__(self, id: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., grantor: _Optional[str] = ...) -> None: ...

class ReadMailboxRequest(_message.Message):
    __slots__ = ("mailbox", "after", "limit", "wait_ms")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    after: int
    limit: int
    wait_ms: int
    def __init__(self, mailbox: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class MailboxEvent(_message.Message):
    __slots__ = ("position", "event")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    position: int
    event: _services_pb2.RemoteEvent
    def __init__(self, position: _Optional[int] = ..., event: _Optional[_Union[_services_pb2.RemoteEvent, _Mapping]] = ...) -> None: ...

class ReadMailboxResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[MailboxEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[MailboxEvent, _Mapping]]] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("mailbox", "position")
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    position: int
    def __init__(self, mailbox: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShowMailboxRequest(_message.Message):
    __slots__ = ("mailbox",)
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    mailbox: str
    def __init__(self, mailbox: _Optional[str] = ...) -> None: ...

class MailboxInfo(_message.Message):
    __slots__ = ("id", "remaining_ms", "events", "bytes", "grantor")
    ID_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    GRANTOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    remaining_ms: int
    events: int
    bytes: int
    grantor: str
    def __init__(self, id: _Optional[str] = ..., remaining_ms: _Optional[int] = ..., events: _Optional[int] = ..., bytes: _Optional[int] = ..., grantor: _Optional[str] = ...) -> None: ...

class ListMailboxesRequest(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: str
    def __init__(self, after: _Optional[str] = ...) -> None: ...

class ListMailboxesResponse(_message.Message):
    __slots__ = ("mailboxes", "next")
    MAILBOXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    mailboxes: _containers.RepeatedCompositeFieldContainer[MailboxInfo]
    next: str
    def __init__(self, mailboxes: _Optional[_Iterable[_Union[MailboxInfo, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...
