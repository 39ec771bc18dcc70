"""gRPC's server reflection: clients such as grpcurl ask a server for its services.

It is `grpc.reflection.v1.ServerReflection`, and has an older name, `v1alpha`; on the wire the two
are the same, so one handler serves both. A file is answered with everything that it imports, itself
first: then a client needs no second request, and one that reads only the first file also works.

A request that cannot be answered gets an error inside of the answer, and the stream continues.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import MAX_SHOWN_BYTES, Answer, Exchange, Method, Methods
from leasehold.wire import reflection_v1_pb2, reflection_v1alpha_pb2
from leasehold.wire.reflection_v1_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)

SERVICES: Final = tuple(
    file.services_by_name["ServerReflection"].full_name
    for file in (reflection_v1_pb2.DESCRIPTOR, reflection_v1alpha_pb2.DESCRIPTOR)
)
"""The names of the reflection service."""

_parse = ServerReflectionRequest.FromString


def services_of(methods: Methods) -> list[str]:
    """Return the names of the services that these methods belong to."""
    return sorted({path.split("/")[1] for path in methods})


class ReflectionService:
    """Describes these services, and itself, from a pool that has all of them."""

    def __init__(self, pool: DescriptorPool, services: Iterable[str]) -> None:
        self._pool = pool
        self._services = sorted({*services, *SERVICES})
        for service in self._services:
            try:
                pool.FindServiceByName(service)
            except KeyError:
                raise ValueError(f"the pool does not describe {service!r}; add its file") from None

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        info = Exchange(self.answer, is_unary=False)
        return {f"/{service}/ServerReflectionInfo": info for service in SERVICES}

    def answer(self, message: bytes) -> Answer:
        """Answer one request."""
        request = parse(_parse, message, is_streamed=True)
        response = ServerReflectionResponse(valid_host=request.host, original_request=request)
        try:
            self._fill(response, request)
        except RpcError as error:
            response.error_response.error_code = error.status
            response.error_response.error_message = error.message
        return response.SerializeToString(), 0

    def _fill(self, response: ServerReflectionResponse, request: ServerReflectionRequest) -> None:
        match request.WhichOneof("message_request"):
            case "list_services":
                for service in self._services:
                    response.list_services_response.service.add(name=service)
            case "all_extension_numbers_of_type":
                kind = self._message_type(request.all_extension_numbers_of_type)
                numbers = response.all_extension_numbers_response
                numbers.base_type_name = kind.full_name
                numbers.extension_number.extend(
                    sorted(extension.number for extension in self._pool.FindAllExtensions(kind))
                )
            case _:
                file = self._file(request)
                answer = response.file_descriptor_response
                answer.file_descriptor_proto.extend(_with_dependencies(file))

    def _file(self, request: ServerReflectionRequest) -> FileDescriptor:
        match request.WhichOneof("message_request"):
            case "file_by_filename":
                return self._named(request.file_by_filename)
            case "file_containing_symbol":
                return self._containing(request.file_containing_symbol)
            case "file_containing_extension":
                return self._extending(request.file_containing_extension)
            case _:
                raise RpcError(
                    Status.INVALID_ARGUMENT,
                    "message_request is not set, or not supported by this server",
                )

    def _named(self, name: str) -> FileDescriptor:
        try:
            file: FileDescriptor = self._pool.FindFileByName(name)
        except KeyError:
            raise _not_found("file", name) from None
        return file

    def _containing(self, symbol: str) -> FileDescriptor:
        try:
            file: FileDescriptor = self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._containing_method(symbol)
        return file

    def _containing_method(self, symbol: str) -> FileDescriptor:
        """Find a method: it is a symbol in the protocol, but not in a descriptor pool of Python."""
        service_name, _, method = symbol.rpartition(".")
        try:
            service = self._pool.FindServiceByName(service_name)
            file: FileDescriptor = service.methods_by_name[method].containing_service.file
        except KeyError:
            raise _not_found("symbol", symbol) from None
        return file

    def _extending(self, request: ExtensionRequest) -> FileDescriptor:
        kind = self._message_type(request.containing_type)
        number = request.extension_number
        try:
            extension = self._pool.FindExtensionByNumber(kind, number)
        except KeyError:
            raise _not_found(f"extension {number} of", request.containing_type) from None
        return self._containing(extension.full_name)

    def _message_type(self, name: str) -> Descriptor:
        try:
            kind: Descriptor = self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise _not_found("message type", name) from None
        return kind


def _with_dependencies(file: FileDescriptor) -> list[bytes]:
    """Serialize a file and all that it imports, itself first, in the order of grpcio's server."""
    found: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        next_file = waiting.pop()
        if next_file.name not in found:
            found[next_file.name] = next_file.serialized_pb
            waiting += reversed(next_file.dependencies)
    return list(found.values())


def _not_found(what: str, name: str) -> RpcError:
    return RpcError(Status.NOT_FOUND, f"there is no {what} {name[:MAX_SHOWN_BYTES]}")
