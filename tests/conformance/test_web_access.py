"""Listed origins and hosts: etcd and ours with the same `--cors` and `--host-whitelist`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.conftest import COMMANDS, NO_ETCD
from tests.conformance.gateway_client import GatewayClient
from tests.support.servers import etcd_program, running

APP: Final = "https://app.example:8443"
CORS: Final = {
    "access-control-allow-headers": "accept, content-type, authorization",
    "access-control-allow-methods": "POST, GET, OPTIONS, PUT, DELETE",
    "access-control-allow-origin": APP,
}
PREFLIGHT: Final = {"Origin": APP, "Access-Control-Request-Method": "POST"}


@pytest.fixture(scope="module", params=COMMANDS)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayClient]:
    kind: str = request.param
    if kind == "real" and etcd_program("etcd") is None:
        pytest.skip(NO_ETCD)

    def command(data_dir: Path, port: int) -> list[str]:
        hosts = ["127.0.0.1,known.example"] if kind == "real" else ["known.example"]
        more = ["--cors", APP, *[flag for host in hosts for flag in ("--host-whitelist", host)]]
        return [*COMMANDS[kind](data_dir, port), *more]

    with running(command, tmp_path_factory.mktemp(kind)) as started:
        client = GatewayClient(started.endpoint, hidden=frozenset(("vary",)))
        yield client
        client.close()


@pytest.mark.parametrize("path", ["/v3/kv/range", "/version", "/nope"])
def test_a_preflight_of_a_listed_origin(gateway: GatewayClient, path: str) -> None:
    answer = gateway.ask("OPTIONS", path, None, PREFLIGHT)
    assert (answer.status, answer.fields, answer.text) == (200, CORS, "")


def test_calls_pages_and_errors_of_a_listed_origin(gateway: GatewayClient) -> None:
    origin = {"Origin": APP}
    for answer, status in (
        (gateway.ask("POST", "/v3/kv/range", {"key": "Zm9v"}, origin), 200),
        (gateway.ask("POST", "/v3/kv/range", {}, origin), 400),
        (gateway.ask("POST", "/v3/lease/keepalive", {"ID": 1}, origin), 200),
        (gateway.ask("GET", "/health", None, origin), 200),
        (gateway.ask("GET", "/nope", None, origin), 404),
    ):
        assert answer.status == status
        assert {k: v for k, v in answer.fields.items() if k in CORS} == CORS


def test_requests_without_an_origin_get_no_cors_fields(gateway: GatewayClient) -> None:
    answer = gateway.post("/v3/kv/range", {"key": "Zm9v"})
    assert answer.status == 200
    assert not answer.fields.keys() & CORS.keys()


def test_a_preflight_of_an_unlisted_origin_gets_no_cors_fields(gateway: GatewayClient) -> None:
    answer = gateway.ask("OPTIONS", "/v3/kv/range", None, {**PREFLIGHT, "Origin": "https://b"})
    assert not answer.fields.keys() & CORS.keys()


@pytest.mark.parametrize("host", ["known.example", "known.example:2379"])
def test_a_listed_host(gateway: GatewayClient, host: str) -> None:
    assert gateway.ask("GET", "/version", None, {"Host": host}).status == 200


@pytest.mark.parametrize("host", ["other.example", "x.known.example", "known.example.other"])
@pytest.mark.parametrize("path", ["/version", "/health", "/v3/kv/range"])
def test_an_unlisted_host_is_misdirected(gateway: GatewayClient, path: str, host: str) -> None:
    assert gateway.ask("GET", path, None, {"Host": host}).status == 421


def test_the_host_of_an_absolute_target_counts(gateway: GatewayClient) -> None:
    fields = {"Host": "known.example"}
    assert gateway.ask("GET", "http://other.example/version", None, fields).status == 421
    fields = {"Host": "other.example"}
    assert gateway.ask("GET", "http://known.example/version", None, fields).status == 200
