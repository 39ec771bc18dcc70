"""Discovery and joins with real servers, on loopback: by locator. Groups: `tests/faults`."""

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import leasehold
from leasehold.discovery.announced import Registrar
from leasehold.discovery.registrar_connection import ConnectedRegistrar
from leasehold.discovery.registrar_search import MAX_ANSWER_BYTES, MAX_ID_CHARS, RealNetwork
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, Exchange
from leasehold.registry.messages import item_key
from leasehold.registry.state import Item, ServiceType, Template, attribute_set
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import ServiceSettings, Settings
from leasehold.serving.grpc_server import GrpcServer
from leasehold.testing.local_server import LocalServer
from leasehold.wire import registry_pb2 as pb
from tests.support.asynchronous import asynchronous
from tests.support.serve_command import run, serving

PRINTER = Item("", (ServiceType("printer"),), endpoint="10.0.0.7:631")


def locator_of(server: LocalServer) -> str:
    return f"leasehold://localhost:{server.port}"


async def printers(server: LocalServer) -> list[str]:
    """Return the tags of the printers that are registered at a server."""
    async with leasehold.connect(server.endpoint) as client:
        found = await client.registry.lookup(Template(types=(ServiceType("printer"),)), 10)
    sets = [each for item in found.items if item for each in item.attributes]
    return [text for each in sets for _, text in each.fields]


async def color_printer_at(server: LocalServer) -> None:
    """Wait until it is registered, with its attribute."""
    while await printers(server) != ['"color"']:  # noqa: ASYNC110  it is asked for
        await asyncio.sleep(0.01)


@asynchronous
async def test_a_registrar_is_found_by_locator_with_its_id_groups_and_endpoints() -> None:
    settings = Settings(directory=None, services=ServiceSettings(groups=("b", "a")))
    async with LeaseholdServer(settings) as server:
        port = await server.start("127.0.0.1", 0)
        found: asyncio.Future[Registrar] = asyncio.get_running_loop().create_future()
        locator = f"leasehold://LOCALHOST:{port}"
        async with leasehold.Discovery(locators=[locator]) as discovery:
            discovery.add_listener(lambda event: found.set_result(event.registrars[0]))
            registrar = await found
            assert discovery.discovered_locators() == [leasehold.Locator("localhost", port)]
        assert registrar.groups == {"a", "b"}
        assert registrar.groups_number == 1
        assert registrar.endpoints[0] == f"http://localhost:{port}"
        assert registrar.cluster == f"{server.engine.cluster_id:016x}"
        by_number = await RealNetwork().describe(f"127.0.0.1:{port}")
        assert by_number == registrar


@asynchronous
async def test_a_join_keeps_a_service_registered_with_several_registrars() -> None:
    with LocalServer() as first, LocalServer() as second:
        ids: list[str] = []
        locators = [locator_of(first), locator_of(second)]
        tag = attribute_set("Tag", {"tag": "color"})
        join = leasehold.Join(PRINTER, locators=locators, on_id=ids.append, duration=5.0)
        try:
            while len(join.registrars()) < 2:  # noqa: ASYNC110  there is no event for this
                await asyncio.sleep(0.01)
            join.add_attributes([tag])
            await color_printer_at(first)
            await color_printer_at(second)
            (item_id,) = ids
            async with leasehold.connect(first.endpoint) as client:
                await client.kv.delete(item_key(item_id))  # such as by an operator
            await color_printer_at(first)
            assert ids == [item_id]
        finally:
            await join.close()
        for server in (first, second):
            assert await printers(server) == []


@asynchronous
async def test_a_join_registers_nothing_at_another_cluster_than_was_found() -> None:
    """A server may have been replaced, on its address, since its registrar was found."""
    with LocalServer() as server:
        found = Registrar("R", endpoints=(server.endpoint,), cluster=f"{1:016x}")
        with pytest.raises(leasehold.ClusterMismatch):
            await ConnectedRegistrar.open(found, None)
        connected = await ConnectedRegistrar.open(replace(found, cluster=""), None)
        await connected.close()


def test_a_server_that_listens_on_loopback_only_announces_nothing_and_says_so() -> None:
    with serving("--data-dir", "memory:", "--groups", "a,b") as server:
        found = run("discover", "--locator", f"leasehold://localhost:{server.port}", "--json")
        _, errors = server.end(signal.SIGTERM)
    assert json.loads(found.stdout)["registrars"][0]["groups"] == ["a", "b"]
    assert "is not announced: the server listens on loopback only" in errors


def test_the_groups_are_kept_when_a_server_starts_without_them(tmp_path: Path) -> None:
    arguments = ("--data-dir", tmp_path / "data")
    with serving(*arguments, "--groups", "a,") as server:
        server.end(signal.SIGTERM)
    with serving(*arguments) as server:
        found = run("discover", "--locator", f"leasehold://localhost:{server.port}")
        server.end(signal.SIGTERM)
    assert found.returncode == 0
    assert found.stdout.split()[4] == '"",a'


def test_a_server_without_groups_writes_no_key_and_says_nothing(tmp_path: Path) -> None:
    with serving("--data-dir", "memory:") as server:
        endpoint = f"127.0.0.1:{server.port}"
        listed = run("kv", "get", "--prefix", "", "--endpoint", endpoint, "--json")
        _, errors = server.end(signal.SIGTERM)
    assert "announced" not in errors
    assert "leasehold/registrar" not in listed.stdout


def test_discover_reports_locators_without_an_answer() -> None:
    found = run("discover", "--locator", "leasehold://127.0.0.1:1", "--timeout", "2s")
    assert found.returncode == 4
    assert found.stderr == (
        "no registrar was found\n"
        "leasehold: no registrar has answered at leasehold://127.0.0.1:1: cannot connect to "
        "127.0.0.1:1: Connection refused\n"
    )


def test_discover_reports_why_a_server_without_tls_does_not_answer_with_tls() -> None:
    with LocalServer() as server:
        locator = f"leaseholds://localhost:{server.port}"
        found = run("discover", "--locator", locator, "--timeout", "2s")
    assert found.returncode == 4
    assert f"no registrar has answered at {locator}: cannot connect to" in found.stderr
    assert "TLS handshake" in found.stderr


@pytest.mark.parametrize("locator", ["10.0.0.1", "leasehold://a:0"])
def test_discover_refuses_what_is_not_a_locator(locator: str) -> None:
    found = run("discover", "--locator", locator)
    assert found.returncode == 2
    assert "is not a locator: write leasehold://HOST" in found.stderr


def test_member_groups_are_added_set_and_removed_and_kept_over_restarts(tmp_path: Path) -> None:
    arguments = ("--data-dir", tmp_path / "data")
    with serving(*arguments) as server:
        endpoint = f"127.0.0.1:{server.port}"

        def admin(*words: str) -> list[str]:
            done = run("admin", *words, "--endpoint", endpoint)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        unset = run("admin", "groups", "--endpoint", endpoint)
        assert (unset.returncode, unset.stdout) == (0, "")
        assert unset.stderr == "note: no groups were ever set: the registrar is not announced\n"
        assert admin("add-groups", "b", "a", "a") == ["a", "b"]
        assert admin("add-groups", "a", "") == ['""', "a", "b"]
        assert admin("remove-groups", "unknown", "a") == ['""', "b"]
        assert admin("set-groups", "c", "d") == ["c", "d"]
        too_long = run("admin", "set-groups", "x" * 257, "--endpoint", endpoint)
        assert too_long.returncode != 0
        assert "at most 256 characters" in too_long.stderr
        _, errors = server.end(signal.SIGTERM)
    assert errors.count("is not announced: the server listens on loopback only") == 1
    with serving(*arguments) as server:
        endpoint = f"127.0.0.1:{server.port}"
        found = run("admin", "groups", "--json", "--endpoint", endpoint)
        assert json.loads(found.stdout) == {"groups": ["c", "d"], "groups_number": 4}
        empty = run("admin", "set-groups", "--endpoint", endpoint)
        assert (empty.returncode, empty.stdout) == (0, "")
        note = "note: the registrar has no groups: only clients that look for all groups find it\n"
        assert empty.stderr == note
        server.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        (
            pb.RegistrarInfo(id="R", groups=["g" * 100] * (MAX_ANSWER_BYTES // 100)),
            "larger than this client accepts",
        ),
        (pb.RegistrarInfo(id="R" * (MAX_ID_CHARS + 1)), "ids of a registrar and"),
        (
            pb.RegistrarInfo(id="R", cluster="c" * (MAX_ID_CHARS + 1)),
            "ids of a registrar and",
        ),
    ],
)
def test_an_answer_of_a_registrar_that_is_too_large_is_a_failure(
    info: pb.RegistrarInfo, problem: str
) -> None:
    async def describe(_message: bytes, _context: CallContext) -> Answer:
        return info.SerializeToString(), 0

    async def main() -> None:
        path = "/leasehold.v1.Registry/Describe"
        serving = GrpcServer({path: Exchange(describe, reads_context=True)})
        await serving.start(["127.0.0.1:0"])
        try:
            with pytest.raises((ValueError, RpcError), match=problem):
                await RealNetwork().describe(str(serving.addresses[0]))
        finally:
            await serving.close()

    asyncio.run(main())
