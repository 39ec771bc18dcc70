# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/journal.proto: change that one.
from leasehold.wire import kv_pb2 as _kv_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Changes(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("put", "deleted", "granted", "ended", "promised", "compacted", "jumped")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    JUMPED_FIELD_NUMBER: _ClassVar[int]
    put: _kv_pb2.KeyValue
    deleted: Deleted
    granted: Granted
    ended: Ended
    promised: Promised
    compacted: Compacted
    jumped: Jumped
    def __init__(self, put: _Optional[_Union[_kv_pb2.KeyValue, _Mapping]] = ..., deleted: _Optional[_Union[Deleted, _Mapping]] = ..., granted: _Optional[_Union[Granted, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., promised: _Optional[_Union[Promised, _Mapping]] = ..., compacted: _Optional[_Union[Compacted, _Mapping]] = ..., jumped: _Optional[_Union[Jumped, _Mapping]] = ...) -> None: ...

class Deleted(_message.Message):
    __slots__ = ("key", "revision")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    revision: int
    def __init__(self, key: _Optional[bytes] = ..., revision: _Optional[int] = ...) -> None: ...

class Granted(_message.Message):
    __slots__ = ("id", "ttl_s", "holder")
    ID_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    id: int
    ttl_s: float
    holder: str
    def __init__(self, id: _Optional[int] = ..., ttl_s: _Optional[float] = ..., holder: _Optional[str] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Promised(_message.Message):
    __slots__ = ("id", "promised_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    PROMISED_S_FIELD_NUMBER: _ClassVar[int]
    id: int
    promised_s: float
    def __init__(self, id: _Optional[int] = ..., promised_s: _Optional[float] = ...) -> None: ...

class Compacted(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class Jumped(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class Ids(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...
