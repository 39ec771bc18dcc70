"""Health checking and reflection of a real server, judged by gRPC's own Python packages.

Theirs are in protobuf's default pool, ours in a private one; only bytes go from one to the other.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import (
    proto_reflection_descriptor_database,
    reflection,
    reflection_pb2,
    reflection_pb2_grpc,
)

from leasehold.wire import (
    admin_pb2,
    auth_pb2,
    cluster_pb2,
    discovery_pb2,
    election_pb2,
    events_pb2,
    leases_pb2,
    lock_pb2,
    maintenance_pb2,
    reflection_v1_pb2,
    reflection_v1alpha_pb2,
    registry_pb2,
    renewal_pb2,
    rpc_pb2,
    services_pb2,
)
from leasehold.wire import health_pb2 as our_health_pb2
from leasehold.wire.pool import POOL
from tests.support.servers import RunningServer, leasehold_command, running

DEADLINE_S: Final = 60.0


def _services(*modules: Any) -> list[str]:
    services = [each for module in modules for each in module.DESCRIPTOR.services_by_name.values()]
    return sorted(service.full_name for service in services)


OURS: Final = _services(
    auth_pb2,
    cluster_pb2,
    discovery_pb2,
    election_pb2,
    events_pb2,
    leases_pb2,
    lock_pb2,
    maintenance_pb2,
    registry_pb2,
    admin_pb2,
    renewal_pb2,
    rpc_pb2,
    services_pb2,
)
"""All that this server is there for."""

ALL: Final = sorted([*OURS, *_services(our_health_pb2, reflection_v1_pb2, reflection_v1alpha_pb2)])
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN

Question = Any
"""A `ServerReflectionRequest` of theirs."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(leasehold_command, tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="module")
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.endpoint) as channel:
        yield channel


# Health.


def _request(service: str) -> Any:
    return health_pb2.HealthCheckRequest(service=service)


@pytest.mark.parametrize("service", ["", *OURS])
def test_a_server_that_has_started_serves(channel: grpc.Channel, service: str) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    assert health.Check(_request(service), timeout=DEADLINE_S).status == SERVING


def test_an_unknown_service_is_not_found(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        health_pb2_grpc.HealthStub(channel).Check(_request("nobody"), timeout=DEADLINE_S)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "unknown service nobody"


def test_all_services_are_listed(channel: grpc.Channel) -> None:
    request = health_pb2.HealthListRequest()
    answer = health_pb2_grpc.HealthStub(channel).List(request, timeout=DEADLINE_S)
    assert {name: each.status for name, each in answer.statuses.items()} == dict.fromkeys(
        ["", *OURS], SERVING
    )


@pytest.mark.parametrize(("service", "first"), [("", SERVING), ("nobody", SERVICE_UNKNOWN)])
def test_a_watch_begins_with_how_things_are(
    channel: grpc.Channel, service: str, first: int
) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(_request(service), timeout=DEADLINE_S)
    assert next(watch).status == first
    assert watch.is_active()
    watch.cancel()


@pytest.mark.parametrize("service", ["", "etcdserverpb.Lease"])
def test_watchers_are_told_when_the_server_closes(tmp_path: Path, service: str) -> None:
    with running(leasehold_command, tmp_path) as server:
        channel = grpc.insecure_channel(server.endpoint)
        watch = health_pb2_grpc.HealthStub(channel).Watch(_request(service), timeout=DEADLINE_S)
        assert next(watch).status == SERVING
    with channel:
        assert next(watch).status == NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def _checked_channel(server: RunningServer, service: str) -> grpc.Channel:
    """A channel of the kind that watches a server's health itself, and obeys it."""
    config = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "healthCheckConfig": {"serviceName": service},
    }
    options = [("grpc.service_config", json.dumps(config)), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(server.endpoint, options)


def _put(channel: grpc.Channel) -> rpc_pb2.PutResponse:
    call = channel.unary_unary(
        "/etcdserverpb.KV/Put",
        rpc_pb2.PutRequest.SerializeToString,
        rpc_pb2.PutResponse.FromString,
    )
    answer = call(rpc_pb2.PutRequest(key=b"checked"), timeout=DEADLINE_S)
    assert isinstance(answer, rpc_pb2.PutResponse)
    return answer


def test_grpcs_own_health_checks_find_a_healthy_service(server: RunningServer) -> None:
    with _checked_channel(server, "etcdserverpb.KV") as channel:
        assert _put(channel).header.revision


def test_grpcs_own_health_checks_avoid_a_service_that_is_not_there(server: RunningServer) -> None:
    with _checked_channel(server, "nobody") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            _put(channel)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


# Reflection.


@pytest.fixture
def database(channel: grpc.Channel) -> Any:
    """Their client: a source of descriptors that asks a server."""
    return proto_reflection_descriptor_database.ProtoReflectionDescriptorDatabase(channel)


def test_all_services_are_found(database: Any) -> None:
    assert list(database.get_services()) == ALL


def _call(channel: grpc.Channel, service: ServiceDescriptor, name: str, **fields: Any) -> Any:
    """Make a call as grpcurl does: with nothing but what the server told."""
    method = service.methods_by_name[name]
    call = channel.unary_unary(
        f"/{service.full_name}/{name}",
        lambda message: message.SerializeToString(),
        GetMessageClass(method.output_type).FromString,
    )
    return call(GetMessageClass(method.input_type)(**fields), timeout=DEADLINE_S)


def test_a_client_without_our_protos_can_call_etcds_methods(
    channel: grpc.Channel, database: Any
) -> None:
    service = DescriptorPool(database).FindServiceByName("etcdserverpb.KV")
    put = _call(channel, service, "Put", key=b"seen", value=b"in a mirror")
    found = _call(channel, service, "Range", key=b"seen")
    assert type(found) is not rpc_pb2.RangeResponse
    [pair] = found.kvs
    assert (pair.key, pair.value) == (b"seen", b"in a mirror")
    assert pair.mod_revision == put.header.revision


@pytest.mark.parametrize("name", ALL)
def test_a_service_is_described_as_we_have_it(database: Any, name: str) -> None:
    theirs, ours = DescriptorPool(database).FindServiceByName(name), POOL.FindServiceByName(name)
    assert theirs.file.serialized_pb == ours.file.serialized_pb
    for method, described in zip(ours.methods, theirs.methods, strict=True):
        assert described.full_name == method.full_name
        assert described.input_type.full_name == method.input_type.full_name
        assert described.output_type.full_name == method.output_type.full_name


def test_what_is_unknown_is_a_key_error_to_their_client(database: Any) -> None:
    for find in (database.FindFileByName, database.FindFileContainingSymbol):
        with pytest.raises(KeyError):
            find("nothing.Known")
    assert list(database.FindAllExtensionNumbers("etcdserverpb.PutRequest")) == []


def _questions() -> list[Question]:
    ask = reflection_pb2.ServerReflectionRequest
    names = ["", "rpc.proto", "kv.proto", "health.proto", "reflection_v1.proto", "nothing.proto"]
    symbols = ["", "mvccpb", "mvccpb.KeyValue", "mvccpb.KeyValue.key", "mvccpb.Event.PUT", *ALL]
    types = ["", "mvccpb.KeyValue", "etcdserverpb.KV", "nothing"]
    return [
        ask(list_services=""),
        ask(host="example.org", list_services="*"),
        ask(),
        *(ask(file_by_filename=name) for name in names),
        *(ask(file_containing_symbol=symbol) for symbol in symbols),
        *(ask(all_extension_numbers_of_type=kind) for kind in types),
        *(
            ask(file_containing_extension={"containing_type": kind, "extension_number": 1})
            for kind in types
        ),
    ]


def _comparable(response: Any) -> Any:
    """Leave out what servers may say as they like: the words of errors, and the host."""
    response.valid_host = ""
    if response.HasField("error_response"):
        response.error_response.error_message = ""
    return response


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_one_stream_answers_all_questions_as_their_server_does(
    channel: grpc.Channel, version: str
) -> None:
    questions = _questions()
    judge: Any = reflection.ReflectionServicer(ALL, POOL)
    expected = list(judge.ServerReflectionInfo(iter(questions), None))
    answers = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )(iter(questions), timeout=DEADLINE_S)
    assert [_comparable(answer) for answer in answers] == [_comparable(each) for each in expected]


def test_a_conversation_may_go_on_as_long_as_its_client_likes(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    question = reflection_pb2.ServerReflectionRequest(file_containing_symbol="etcdserverpb.KV")
    answers = stub.ServerReflectionInfo(iter([question] * 300), timeout=DEADLINE_S)
    assert {len(each.file_descriptor_response.file_descriptor_proto) for each in answers} == {2}
    assert answers.code() == grpc.StatusCode.OK
