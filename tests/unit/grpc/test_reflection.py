"""Server reflection, rule by rule, on our own pool, and on one with what ours lacks: extensions."""

from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.reflection import SERVICES, ReflectionService, services_of
from leasehold.grpc.routes import MAX_SHOWN_BYTES, Exchange
from leasehold.wire import kv_pb2, reflection_v1_pb2, reflection_v1alpha_pb2, rpc_pb2
from leasehold.wire.pool import POOL
from leasehold.wire.reflection_v1_pb2 import (
    ErrorResponse,
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)
from tests.support.h2_peer import Peer, Service

OWN: Final = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
ETCD: Final = ["etcdserverpb.KV", "etcdserverpb.Lease", "etcdserverpb.Watch"]


def _extension(name: str, number: int) -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name,
        number=number,
        type=FieldDescriptorProto.TYPE_STRING,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
        extendee=".zoo.Animal",
    )


def _zoo() -> DescriptorPool:
    """A pool of files that import each other in a diamond, with extensions in the topmost."""
    base = FileDescriptorProto(name="animal.proto", package="zoo", syntax="proto2")
    base.message_type.add(name="Animal").extension_range.add(start=100, end=200)
    base.message_type.add(name="Plant")
    left = FileDescriptorProto(name="left.proto", package="zoo", dependency=["animal.proto"])
    right = FileDescriptorProto(name="right.proto", package="zoo", dependency=["animal.proto"])
    top = FileDescriptorProto(name="top.proto", package="zoo", syntax="proto2")
    top.dependency.extend(["left.proto", "right.proto", "animal.proto"])
    top.extension.extend([_extension("wings", 150), _extension("fins", 110)])
    top.message_type.add(name="Nest").extension.append(_extension("eggs", 120))
    pool = DescriptorPool()
    for file in (base, left, right, top):
        pool.AddSerializedFile(file.SerializeToString())
    for module in (reflection_v1_pb2, reflection_v1alpha_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return pool


@pytest.fixture
def etcd() -> ReflectionService:
    return ReflectionService(POOL, ETCD)


@pytest.fixture
def zoo() -> ReflectionService:
    return ReflectionService(_zoo(), [])


def _ask(
    reflection: ReflectionService, request: ServerReflectionRequest
) -> ServerReflectionResponse:
    answer, position = reflection.answer(request.SerializeToString())
    assert position == 0
    response = ServerReflectionResponse.FromString(answer)
    assert response.original_request == request
    return response


def _files(reflection: ReflectionService, request: ServerReflectionRequest) -> list[str]:
    response = _ask(reflection, request)
    assert response.WhichOneof("message_response") == "file_descriptor_response", response
    files = response.file_descriptor_response.file_descriptor_proto
    return [FileDescriptorProto.FromString(file).name for file in files]


def _error(reflection: ReflectionService, request: ServerReflectionRequest) -> ErrorResponse:
    response = _ask(reflection, request)
    assert response.WhichOneof("message_response") == "error_response", response
    return response.error_response


def _by_name(name: str) -> ServerReflectionRequest:
    return ServerReflectionRequest(file_by_filename=name)


def _by_symbol(symbol: str) -> ServerReflectionRequest:
    return ServerReflectionRequest(file_containing_symbol=symbol)


def _by_extension(containing_type: str, number: int) -> ServerReflectionRequest:
    wanted = ExtensionRequest(containing_type=containing_type, extension_number=number)
    return ServerReflectionRequest(file_containing_extension=wanted)


def _numbers_of(name: str) -> ServerReflectionRequest:
    return ServerReflectionRequest(all_extension_numbers_of_type=name)


# Services.


@pytest.mark.parametrize("value", ["", "*", "whatever"])
def test_all_services_are_listed_in_order_and_reflection_itself(
    etcd: ReflectionService, value: str
) -> None:
    response = _ask(etcd, ServerReflectionRequest(list_services=value))
    assert [each.name for each in response.list_services_response.service] == [*ETCD, *OWN]


def test_a_service_that_the_pool_does_not_describe_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"etcdserverpb\.Missing"):
        ReflectionService(POOL, ["etcdserverpb.Missing"])
    with pytest.raises(ValueError, match=r"grpc\.reflection\.v1"):
        ReflectionService(DescriptorPool(), [])


def test_both_names_of_reflection_are_served(etcd: ReflectionService) -> None:
    assert list(SERVICES) == OWN
    assert list(etcd.methods()) == [f"/{service}/ServerReflectionInfo" for service in OWN]


def test_services_are_named_by_the_paths_of_their_methods() -> None:
    method = Exchange(lambda message: (message, 0))
    assert services_of({"/b.B/One": method, "/a.A/One": method, "/b.B/Two": method}) == [
        "a.A",
        "b.B",
    ]


def test_both_names_of_reflection_have_the_same_messages() -> None:
    newer, older = (
        str(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
        for module in (reflection_v1_pb2, reflection_v1alpha_pb2)
    )
    assert newer != older
    assert newer == older.replace("v1alpha", "v1")


# Files.


def test_a_file_is_found_by_its_name_and_comes_first(etcd: ReflectionService) -> None:
    assert _files(etcd, _by_name("rpc.proto")) == ["rpc.proto", "kv.proto"]
    assert _files(etcd, _by_name("kv.proto")) == ["kv.proto"]


def test_a_file_is_sent_as_the_pool_has_it(etcd: ReflectionService) -> None:
    answer = _ask(etcd, _by_name("rpc.proto")).file_descriptor_response
    assert list(answer.file_descriptor_proto) == [
        rpc_pb2.DESCRIPTOR.serialized_pb,
        kv_pb2.DESCRIPTOR.serialized_pb,
    ]


def test_what_a_file_imports_comes_along_once(zoo: ReflectionService) -> None:
    first, *others = _files(zoo, _by_name("top.proto"))
    assert first == "top.proto"
    assert sorted(others) == ["animal.proto", "left.proto", "right.proto"]


def test_a_file_that_was_sent_is_sent_again(etcd: ReflectionService) -> None:
    assert _files(etcd, _by_name("rpc.proto")) == _files(etcd, _by_name("rpc.proto"))


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("etcdserverpb.KV", "rpc.proto"),
        ("etcdserverpb.KV.Put", "rpc.proto"),
        ("etcdserverpb.Lease.LeaseKeepAlive", "rpc.proto"),
        ("etcdserverpb.PutRequest", "rpc.proto"),
        ("etcdserverpb.PutRequest.key", "rpc.proto"),
        ("etcdserverpb.RangeRequest.SortOrder", "rpc.proto"),
        ("etcdserverpb.RangeRequest.DESCEND", "rpc.proto"),
        ("mvccpb.KeyValue", "kv.proto"),
        ("mvccpb.Event.EventType", "kv.proto"),
        (OWN[0], "reflection_v1.proto"),
        (OWN[1], "reflection_v1alpha.proto"),
    ],
)
def test_a_symbol_leads_to_its_file(etcd: ReflectionService, symbol: str, file: str) -> None:
    assert _files(etcd, _by_symbol(symbol))[0] == file


@pytest.mark.parametrize(
    "symbol",
    [
        "",
        ".",
        "KV",
        "etcdserverpb",
        "etcdserverpb.",
        "etcdserverpb.KV.",
        "etcdserverpb.KV.Nothing",
        "etcdserverpb.KV.Put.more",
        "etcdserverpb.Nothing.Put",
        "etcdserverpb.PutRequest.nothing",
        "kv.proto",
        "\0",
    ],
)
def test_an_unknown_symbol_is_an_error_in_the_answer(etcd: ReflectionService, symbol: str) -> None:
    error = _error(etcd, _by_symbol(symbol))
    assert error.error_code == Status.NOT_FOUND
    assert error.error_message == f"there is no symbol {symbol}"


@pytest.mark.parametrize("name", ["", "nothing.proto", "etcdserverpb.KV"])
def test_an_unknown_file_is_an_error_in_the_answer(etcd: ReflectionService, name: str) -> None:
    error = _error(etcd, _by_name(name))
    assert (error.error_code, error.error_message) == (
        Status.NOT_FOUND,
        f"there is no file {name}",
    )


def test_an_error_repeats_little_of_a_long_name(etcd: ReflectionService) -> None:
    error = _error(etcd, _by_name("x" * 1_000_000))
    assert len(error.error_message) < MAX_SHOWN_BYTES + 50


# Extensions.


@pytest.mark.parametrize(("number", "symbol"), [(150, "zoo.wings"), (120, "zoo.Nest.eggs")])
def test_an_extension_leads_to_the_file_that_defines_it(
    zoo: ReflectionService, number: int, symbol: str
) -> None:
    files = _files(zoo, _by_extension("zoo.Animal", number))
    assert files[0] == "top.proto"
    assert _files(zoo, _by_symbol(symbol)) == files


@pytest.mark.parametrize("number", [151, 0, -1, 2**31 - 1, -(2**31)])
def test_an_unknown_extension_is_an_error_in_the_answer(
    zoo: ReflectionService, number: int
) -> None:
    error = _error(zoo, _by_extension("zoo.Animal", number))
    assert error.error_code == Status.NOT_FOUND
    assert error.error_message == f"there is no extension {number} of zoo.Animal"


def test_all_extension_numbers_of_a_type_are_listed_in_order(zoo: ReflectionService) -> None:
    numbers = _ask(zoo, _numbers_of("zoo.Animal")).all_extension_numbers_response
    assert numbers.base_type_name == "zoo.Animal"
    assert list(numbers.extension_number) == [110, 120, 150]


def test_a_type_without_extensions_has_an_empty_list(zoo: ReflectionService) -> None:
    response = _ask(zoo, _numbers_of("zoo.Plant"))
    assert response.WhichOneof("message_response") == "all_extension_numbers_response"
    assert response.all_extension_numbers_response.base_type_name == "zoo.Plant"
    assert not response.all_extension_numbers_response.extension_number


@pytest.mark.parametrize("name", ["", "zoo.Nothing", "zoo.wings", "zoo"])
def test_an_unknown_type_is_an_error_in_the_answer(zoo: ReflectionService, name: str) -> None:
    for request in (_numbers_of(name), _by_extension(name, 150)):
        error = _error(zoo, request)
        assert error.error_code == Status.NOT_FOUND
        assert error.error_message == f"there is no message type {name}"


# Answers.


def test_a_request_for_nothing_is_an_error_in_the_answer(etcd: ReflectionService) -> None:
    error = _error(etcd, ServerReflectionRequest(host="h"))
    assert error.error_code == Status.INVALID_ARGUMENT
    assert error.error_message


def test_the_host_is_given_back(etcd: ReflectionService) -> None:
    for request in (
        ServerReflectionRequest(host="example.org", list_services=""),
        ServerReflectionRequest(host="example.org", file_by_filename="nothing.proto"),
    ):
        assert _ask(etcd, request).valid_host == "example.org"


def test_what_is_no_message_ends_the_call(etcd: ReflectionService) -> None:
    with pytest.raises(RpcError) as caught:
        etcd.answer(b"\xff")
    assert caught.value.status is Status.INTERNAL


@pytest.mark.parametrize("service", OWN)
def test_a_stream_goes_on_after_an_error(etcd: ReflectionService, service: str) -> None:
    methods = Service()
    methods.methods = etcd.methods()
    peer = Peer(methods)
    stream = peer.open(f"/{service}/ServerReflectionInfo")
    asked = [_by_symbol("nothing"), ServerReflectionRequest(), _by_symbol("etcdserverpb.KV")]
    peer.say(stream, *(each.SerializeToString() for each in asked), end=True)
    peer.pump()
    answers = [ServerReflectionResponse.FromString(each) for each in peer.reply(stream).messages]
    assert [each.WhichOneof("message_response") for each in answers] == [
        "error_response",
        "error_response",
        "file_descriptor_response",
    ]
    assert peer.reply(stream).status == Status.OK
