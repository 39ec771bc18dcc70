"""Requests of web browsers on real sockets: pages of other sites, DNS rebinding, CORS."""

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.serve_command import serving
from tests.support.servers import RunningServer, leasehold_command, running

TIMEOUT_S: Final = 60.0
APP: Final = "https://app.example"
PUT: Final = '{"key":"Zm9v","value":"YmFy"}'
PAGES: Final = ["/health", "/metrics", "/version"]
VERSIONS: Final = ["--http1.1", "--http2-prior-knowledge"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(leasehold_command, tmp_path_factory.mktemp("closed")) as started:
        yield started


@pytest.fixture(scope="module")
def with_cors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    def command(data_dir: Path, port: int) -> list[str]:
        more = ["--cors", APP, "--host-whitelist", "leasehold.example"]
        return [*leasehold_command(data_dir, port), *more]

    with running(command, tmp_path_factory.mktemp("cors")) as started:
        yield started


class Answer:
    """The answer to a request made with curl."""

    def __init__(self, output: bytes) -> None:
        head, _, self.body = output.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.fields = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }

    @property
    def cors(self) -> dict[str, str]:
        return {k: v for k, v in self.fields.items() if k.startswith("access-control-")}


def curl(
    server: RunningServer, version: str, path: str, *more: str, body: str | None = None
) -> Answer:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl")
    data = [] if body is None else ["--data-binary", body]
    command = [program, "-sSi", "--noproxy", "*", version, *more, *data]
    url = f"http://{server.endpoint}{path}"
    run = subprocess.run([*command, url], capture_output=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    assert run.returncode == 0, run.stderr
    return Answer(run.stdout)


def keys(server: RunningServer) -> int:
    connection = http.client.HTTPConnection(server.endpoint, timeout=TIMEOUT_S)
    body = json.dumps({"key": "AA==", "range_end": "AA==", "count_only": True})
    connection.request("POST", "/v3/kv/range", body)
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return int(answer.get("count", 0))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields",
    [
        ["Origin: https://evil.example"],
        ["Origin: https://evil.example", "Content-Type: text/plain;charset=UTF-8"],
        ["Origin: https://evil.example", "Content-Type: application/json"],
        ["Origin: null"],
        ["Origin: http://localhost:8000"],
        ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-site"],
        ["Host: rebound.evil.example"],
        ["Host: rebound.evil.example", "Origin: http://rebound.evil.example"],
    ],
)
def test_a_page_of_another_site_can_neither_write_nor_read(
    server: RunningServer, version: str, fields: list[str]
) -> None:
    flags = [flag for field in fields for flag in ("-H", field)]
    before = keys(server)
    answer = curl(server, version, "/v3/kv/put", *flags, body=PUT)
    assert answer.status == (421 if fields[0].startswith("Host") else 403)
    assert not answer.cors
    assert keys(server) == before
    for page in PAGES:
        answer = curl(server, version, page, *flags)
        assert answer.status in (403, 421)
        assert not answer.cors


@pytest.mark.parametrize("version", VERSIONS)
def test_programs_without_these_fields_are_served_as_before(
    server: RunningServer, version: str
) -> None:
    answer = curl(server, version, "/v3/kv/put", body=PUT)  # of a content type of HTML forms
    assert answer.status == 200
    assert not answer.cors
    for page in PAGES:
        assert curl(server, version, page).status == 200


@pytest.mark.parametrize("version", VERSIONS)
def test_a_listed_origin_may_ask_and_read(with_cors: RunningServer, version: str) -> None:
    flags = ["-H", f"Origin: {APP}", "-H", "Sec-Fetch-Site: cross-site"]
    wanted = ["-H", "Access-Control-Request-Method: POST", "-X", "OPTIONS"]
    preflight = curl(with_cors, version, "/v3/kv/put", *flags, *wanted)
    assert preflight.status == 200
    assert preflight.body == b""
    assert preflight.cors == {
        "access-control-allow-headers": "accept, content-type, authorization",
        "access-control-allow-methods": "POST, GET, OPTIONS, PUT, DELETE",
        "access-control-allow-origin": APP,
    }
    for answer in (
        curl(with_cors, version, "/v3/kv/put", *flags, body=PUT),
        curl(with_cors, version, "/v3/lease/keepalive", *flags, body='{"ID":1}'),  # in pieces
        curl(with_cors, version, "/version", *flags),
    ):
        assert answer.status == 200
        assert answer.cors == preflight.cors
        assert answer.fields["vary"] == "Origin"


@pytest.mark.parametrize("version", VERSIONS)
def test_others_are_still_refused_where_one_origin_is_listed(
    with_cors: RunningServer, version: str
) -> None:
    answer = curl(with_cors, version, "/v3/kv/put", "-H", "Origin: https://b.example", body=PUT)
    assert answer.status == 403
    assert not answer.cors
    assert answer.fields["vary"] == "Origin"
    assert curl(with_cors, version, "/v3/kv/put", body=PUT).status == 200


@pytest.mark.parametrize("version", VERSIONS)
def test_a_listed_host_may_be_used(with_cors: RunningServer, version: str) -> None:
    assert curl(with_cors, version, "/version", "-H", "Host: Leasehold.Example.:99").status == 200
    assert curl(with_cors, version, "/version", "-H", "Host: other.example").status == 421


def test_without_the_gateway_there_are_pages_only() -> None:
    with serving("--data-dir", "memory:", "--listen", "127.0.0.1:0", "--no-gateway") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
        for path in ("/v3/kv/put", "/v3/watch", "/v1/leases/list", "/v3beta/kv/put"):
            connection.request("POST", path, PUT)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 404
        for page in PAGES:
            connection.request("GET", page)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        connection.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_answer_has_its_date(server: RunningServer, version: str) -> None:
    before = int(time.time())
    for answer in (
        curl(server, version, "/health"),
        curl(server, version, "/nope"),
        curl(server, version, "/v3/lease/keepalive", body='{"ID":1}'),
    ):
        sent = parsedate_to_datetime(answer.fields["date"]).timestamp()
        assert before <= sent <= time.time()
