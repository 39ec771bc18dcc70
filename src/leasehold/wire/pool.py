"""The descriptor pool of our messages, which nobody else can see.

Protobuf's default pool holds one definition of a name per process. Every etcd client brings its own
copy of `mvccpb.KeyValue`, and two that differ in the least cannot both be imported. Ours live here.
"""

from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

POOL: Final = DescriptorPool()


def add_file(serialized: bytes) -> FileDescriptor:
    """Take in a serialized `FileDescriptorProto`; those that it imports come first."""
    file: FileDescriptor = POOL.AddSerializedFile(serialized)
    return file


def message_class(file: FileDescriptor, name: str) -> Any:
    """Make the class of a message of this file; the types are in the module's `.pyi`."""
    return GetMessageClass(file.message_types_by_name[name])
