"""The private descriptor pool of our messages.

Protobuf's default pool holds one definition of a name per process. Every etcd client brings its own
copy of `mvccpb.KeyValue`, and two that differ cannot both be imported. Ours are in this pool.
"""

from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

POOL: Final = DescriptorPool()


def add_file(serialized: bytes) -> FileDescriptor:
    """Add a serialized `FileDescriptorProto`; its imports must be added before."""
    file: FileDescriptor = POOL.AddSerializedFile(serialized)
    return file


def message_class(file: FileDescriptor, name: str) -> Any:
    """Return the class of a message of this file; the types are in the module's `.pyi`."""
    return GetMessageClass(file.message_types_by_name[name])
