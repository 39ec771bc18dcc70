"""The gateway on real sockets: both versions of HTTP, who hangs up, and a server that ends."""

import base64
import http.client
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.serving.server_protocol import MAX_UNREAD_BYTES
from tests.support.servers import RunningServer, leasehold_command, running

TIMEOUT_S: Final = 60.0
LISTEN_S: Final = ("1", "10", "30")
"""How long curl listens to a watch; the longer ones are for a starved server."""
KEY: Final = "Zm9v"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(leasehold_command, tmp_path_factory.mktemp("gateway")) as started:
        yield started


def _curl(server: RunningServer, version: str, path: str, body: str, *more: str) -> bytes:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl")
    command = [program, "-sS", "--noproxy", "*", version, *more, "--data-binary", body]
    url = f"http://{server.endpoint}{path}"
    run = subprocess.run([*command, url], capture_output=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    assert run.returncode in (0, 28), run.stderr  # 28: the time that it was given is over
    return run.stdout


def _post(server: RunningServer, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"http://{server.endpoint}{path}", data=json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return json.loads(answer.read())


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_both_versions_of_http(server: RunningServer, version: str) -> None:
    put = json.loads(_curl(server, version, "/v3/kv/put", f'{{"key":"{KEY}","value":"YmFy"}}'))
    revision = put["header"]["revision"]
    found = json.loads(_curl(server, version, "/v3/kv/range", f'{{"key":"{KEY}"}}'))
    assert found["kvs"][0]["mod_revision"] == revision
    watch = f'{{"create_request":{{"key":"{KEY}","start_revision":{revision}}}}}'
    for listen_s in LISTEN_S:
        said = _curl(server, version, "/v3/watch", watch, "-N", "--max-time", listen_s)
        if len(said.splitlines()) >= 2:
            break
    created, event = (json.loads(line)["result"] for line in said.splitlines())
    assert created["created"]
    assert event["events"][0]["kv"]["mod_revision"] == revision
    large = json.dumps({"key": KEY, "value": "eHh4" * 480_000})
    answer = _curl(server, version, "/v3/kv/put", f"@{_file(server, large)}")
    assert json.loads(answer)["header"]
    found = json.loads(_curl(server, version, "/v3/kv/range", f'{{"key":"{KEY}"}}'))
    assert found["kvs"][0]["value"] == "eHh4" * 480_000
    too_large = json.dumps({"key": KEY, "value": "eHh4" * 2_000_000})
    refused = _curl(server, version, "/v3/kv/put", f"@{_file(server, too_large)}")
    assert json.loads(refused)["code"] == 8


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_an_answer_that_is_larger_than_what_may_be_unread_arrives(
    server: RunningServer, version: str
) -> None:
    value = "eHh4" * 300_000
    for number in range(4):
        name = base64.b64encode(b"large%d" % number).decode()
        _post(server, "/v3/kv/put", {"key": name, "value": value})
    end = base64.b64encode(b"largf").decode()
    read = {"request_range": {"key": base64.b64encode(b"large").decode(), "range_end": end}}
    body = _curl(server, version, "/v3/kv/txn", json.dumps({"success": [read] * 8}))
    assert len(body) > MAX_UNREAD_BYTES
    for each in json.loads(body)["responses"]:
        assert [pair["value"] for pair in each["response_range"]["kvs"]] == [value] * 4


def _file(server: RunningServer, text: str) -> Path:
    file = server.log.parent / "body"
    file.write_text(text)
    return file


def _metric(server: RunningServer, name: str) -> float:
    with urllib.request.urlopen(f"http://{server.endpoint}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    values = [
        line.rpartition(" ")[2] for line in lines if line.startswith((name + " ", name + "{"))
    ]
    return sum(map(float, values))


def _becomes(server: RunningServer, name: str, value: float) -> bool:
    give_up_at = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at:
        if _metric(server, name) == value:
            return True
        time.sleep(0.02)
    return False


def test_a_watch_ends_when_its_client_hangs_up(server: RunningServer) -> None:
    before = _metric(server, "etcd_debugging_mvcc_watcher_total")
    body = json.dumps({"create_request": {"key": KEY}})
    watches = [http.client.HTTPConnection(server.endpoint, timeout=TIMEOUT_S) for _ in range(5)]
    for watch in watches:
        watch.request("POST", "/v3/watch", body)
        watch.getresponse().readline()
    assert _becomes(server, "etcd_debugging_mvcc_watcher_total", before + 5)
    for watch in watches:
        watch.close()
    assert _becomes(server, "etcd_debugging_mvcc_watcher_total", before)


def test_puts_that_are_sent_ahead_are_answered_in_their_order(server: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S) as client:
        count = 50
        for number in range(count):
            body = json.dumps({"key": KEY, "value": f"{number:04d}"}).encode()
            head = b"POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            client.sendall(head % len(body) + body)
        answers = client.makefile("rb")
        revisions = []
        for _ in range(count):
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.startswith(b"Content-Length:"):
                    length = int(line.split()[1])
            revisions.append(int(json.loads(answers.read(length))["header"]["revision"]))
    assert revisions == list(range(revisions[0], revisions[0] + count))
    assert _post(server, "/v3/kv/range", {"key": KEY})["kvs"][0]["value"] == f"{count - 1:04d}"


def test_a_server_that_ends_tells_its_watches(tmp_path: Path) -> None:
    with (  # noqa: PT012  what is expected is `running`'s own word at the end of its block
        pytest.raises(AssertionError, match="the server has ended"),
        running(leasehold_command, tmp_path) as server,
    ):
        watch = http.client.HTTPConnection(server.endpoint, timeout=TIMEOUT_S)
        watch.request("POST", "/v3/watch", json.dumps({"create_request": {"key": KEY}}))
        answer = watch.getresponse()
        assert json.loads(answer.readline())["result"]["created"]
        server.process.terminate()
        last = json.loads(answer.read())["error"]
        assert (last["grpc_code"], last["http_code"]) == (14, 503)
        watch.close()
        assert server.process.wait(TIMEOUT_S) == 0
