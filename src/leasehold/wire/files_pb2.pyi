# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
# Made by tools/generate_wire.py with grpcio-tools 1.85.1 from protos/files.proto: change that one.
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FilesConfig(_message.Message):
    __slots__ = ("stores", "replicas", "min_replicas", "soft_limit_ms", "hard_limit_ms", "keep_ms", "block_bytes", "keyspace")
    STORES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SOFT_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    HARD_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEYSPACE_FIELD_NUMBER: _ClassVar[int]
    stores: _containers.RepeatedCompositeFieldContainer[FileStore]
    replicas: int
    min_replicas: int
    soft_limit_ms: int
    hard_limit_ms: int
    keep_ms: int
    block_bytes: int
    keyspace: str
    def __init__(self, stores: _Optional[_Iterable[_Union[FileStore, _Mapping]]] = ..., replicas: _Optional[int] = ..., min_replicas: _Optional[int] = ..., soft_limit_ms: _Optional[int] = ..., hard_limit_ms: _Optional[int] = ..., keep_ms: _Optional[int] = ..., block_bytes: _Optional[int] = ..., keyspace: _Optional[str] = ...) -> None: ...

class FileStore(_message.Message):
    __slots__ = ("id", "url", "is_leaving")
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    id: str
    url: str
    is_leaving: bool
    def __init__(self, id: _Optional[str] = ..., url: _Optional[str] = ..., is_leaving: _Optional[bool] = ...) -> None: ...

class FileRecord(_message.Message):
    __slots__ = ("parent", "name", "is_directory", "state", "holder", "holder_revision", "stamp", "blocks", "length", "pipeline", "created_ms", "modified_ms", "op", "rename_op")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    HOLDER_REVISION_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    RENAME_OP_FIELD_NUMBER: _ClassVar[int]
    parent: str
    name: str
    is_directory: bool
    state: int
    holder: str
    holder_revision: int
    stamp: int
    blocks: int
    length: int
    pipeline: _containers.RepeatedScalarFieldContainer[str]
    created_ms: int
    modified_ms: int
    op: str
    rename_op: str
    def __init__(self, parent: _Optional[str] = ..., name: _Optional[str] = ..., is_directory: _Optional[bool] = ..., state: _Optional[int] = ..., holder: _Optional[str] = ..., holder_revision: _Optional[int] = ..., stamp: _Optional[int] = ..., blocks: _Optional[int] = ..., length: _Optional[int] = ..., pipeline: _Optional[_Iterable[str]] = ..., created_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ..., op: _Optional[str] = ..., rename_op: _Optional[str] = ...) -> None: ...

class FileBlock(_message.Message):
    __slots__ = ("stamp", "length", "checksums", "replicas", "op")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    stamp: int
    length: int
    checksums: bytes
    replicas: _containers.RepeatedCompositeFieldContainer[BlockReplica]
    op: str
    def __init__(self, stamp: _Optional[int] = ..., length: _Optional[int] = ..., checksums: _Optional[bytes] = ..., replicas: _Optional[_Iterable[_Union[BlockReplica, _Mapping]]] = ..., op: _Optional[str] = ...) -> None: ...

class BlockReplica(_message.Message):
    __slots__ = ("store", "name", "pieces")
    STORE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    store: str
    name: str
    pieces: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, store: _Optional[str] = ..., name: _Optional[str] = ..., pieces: _Optional[_Iterable[int]] = ...) -> None: ...

class FileRecovery(_message.Message):
    __slots__ = ("path", "attempts", "last_error", "begun_ms", "retry_ms", "is_locked")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    BEGUN_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_MS_FIELD_NUMBER: _ClassVar[int]
    IS_LOCKED_FIELD_NUMBER: _ClassVar[int]
    path: str
    attempts: int
    last_error: str
    begun_ms: int
    retry_ms: int
    is_locked: bool
    def __init__(self, path: _Optional[str] = ..., attempts: _Optional[int] = ..., last_error: _Optional[str] = ..., begun_ms: _Optional[int] = ..., retry_ms: _Optional[int] = ..., is_locked: _Optional[bool] = ...) -> None: ...

class FileTrash(_message.Message):
    __slots__ = ("since_ms", "is_directory", "replicas", "length")
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    since_ms: int
    is_directory: bool
    replicas: _containers.RepeatedCompositeFieldContainer[BlockReplica]
    length: int
    def __init__(self, since_ms: _Optional[int] = ..., is_directory: _Optional[bool] = ..., replicas: _Optional[_Iterable[_Union[BlockReplica, _Mapping]]] = ..., length: _Optional[int] = ...) -> None: ...
