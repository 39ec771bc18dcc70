"""Settings of `leasehold serve` and `leasehold config` in real processes."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from leasehold.basics.lease_ids import shown_lease
from leasehold.cli.settings.sources import read_settings
from leasehold.http2 import frames
from leasehold.wire.leases_pb2 import GrantRequest, GrantResponse
from tests.conformance.client import Client, fails, put_op
from tests.support.serve_command import WITHIN_S, command, environment, run, serving

MEMORY = ("--data-dir", "memory:")
ANY_MS = -1


def client_of(port: int) -> "closing[Client]":
    return closing(Client(f"127.0.0.1:{port}"))


# What is in force.


def test_the_shortest_term_is_the_one_that_was_set() -> None:
    with serving(*MEMORY, "--min-ttl", "7s") as server, client_of(server.port) as client:
        assert client.grant(1).TTL == 7
        assert client.grant(7).TTL == 7
        assert client.grant(8).TTL == 8


def test_a_shortest_term_of_a_second_may_be_set() -> None:
    with serving(*MEMORY, "--min-ttl", "1s") as server, client_of(server.port) as client:
        assert client.grant(0).TTL == 1


def test_a_lease_takes_as_many_keys_as_was_set() -> None:
    with serving(*MEMORY, "--keys-per-lease", "2") as server, client_of(server.port) as client:
        lease = client.grant(60).ID
        client.put(b"a", lease=lease)
        client.put(b"b", lease=lease)
        client.put(b"a", b"again", lease=lease)
        full = f"lease {shown_lease(lease)} has the maximum number of keys: 2,"
        with pytest.raises(grpc.RpcError, match=full):
            client.put(b"c", lease=lease)
        with pytest.raises(grpc.RpcError, match=full):
            client.txn(success=[put_op(b"c", lease=lease)])


def test_policies_are_those_that_were_set(tmp_path: Path) -> None:
    (tmp_path / "leasehold.toml").write_text(
        '[policy.workers]\nmin = "500ms"\nmax = "10m"\ndefault = "30s"\n'
        '[policy.default]\nmax = "1h"\n'
    )
    with serving(*MEMORY, cwd=tmp_path) as server, client_of(server.port) as client:

        def term_ms(policy: str, ttl_ms: int) -> int:
            request = GrantRequest(ttl_ms=ttl_ms, policy=policy)
            body = client.raw("/leasehold.v1.Leases/Grant", request.SerializeToString())
            return GrantResponse.FromString(body).ttl_ms

        assert [term_ms("workers", ms) for ms in (1, 700, ANY_MS, 10**9)] == [
            500,
            700,
            30_000,
            600_000,
        ]
        assert [term_ms("", ms) for ms in (1, ANY_MS, 10**9)] == [1, 60_000, 3_600_000]
        with pytest.raises(grpc.RpcError, match="unknown policy 'other'"):
            term_ms("other", 1)


def test_the_quota_is_the_one_that_was_set() -> None:
    with serving(*MEMORY, "--quota", "1MiB") as server, client_of(server.port) as client:

        def fill() -> None:
            for number in range(100):
                client.put(b"%d" % number, bytes(100_000))

        with fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"):
            fill()


def test_history_is_compacted_as_was_set() -> None:
    flags = ("--compaction-revisions", "10", "--compaction-age", "off")
    with serving(*MEMORY, *flags) as server, client_of(server.port) as client:
        for _ in range(50):
            client.put(b"a")
        until(lambda: code_of(client, 2) is grpc.StatusCode.OUT_OF_RANGE)
        assert code_of(client, client.revision()) is grpc.StatusCode.OK


def code_of(client: Client, revision: int) -> grpc.StatusCode:
    try:
        client.range(b"a", revision=revision)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def test_a_flag_counts_before_a_variable_and_that_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "leasehold.toml").write_text('min-ttl = "5s"\nkeys-per-lease = 5\nquota = "5MiB"\n')
    variables = {"LEASEHOLD_MIN_TTL": "4s", "LEASEHOLD_KEYS_PER_LEASE": "4"}
    said = run("config", "--min-ttl", "3s", cwd=tmp_path, variables=variables)
    assert said.returncode == 0
    found = dict(re.findall(r"^([a-z-]+) = (.*?) *$", said.stdout, re.MULTILINE))
    assert found["min-ttl"].split() == ['"3s"', "#", "--min-ttl"]
    assert found["keys-per-lease"].split() == ["4", "#", "LEASEHOLD_KEYS_PER_LEASE"]
    assert found["quota"].split() == ['"5MiB"', "#", "leasehold.toml:3"]
    assert found["log-level"].split() == ['"info"', "#", "default"]
    served = serving(*MEMORY, "--min-ttl", "3s", cwd=tmp_path, variables=variables)
    with served as server, client_of(server.port) as client:
        assert client.grant(1).TTL == 3


def test_other_machines_are_served_if_told_so_with_a_warning() -> None:
    flags = (*MEMORY, "--listen", "0.0.0.0:0")
    refused = run("serve", *flags)
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "leasehold: --listen: 0.0.0.0:0 can be reached from other mach"
    )
    assert refused.stderr.count("\n") == 1
    with serving(*flags, "--insecure") as server:
        assert re.search(r"--endpoints 127\.0\.0\.1:\d+ ", server.line())
        _, errors = server.end(signal.SIGTERM)
    assert "can read and change all data" in errors


# What is wrong.


def test_wrong_settings_are_told_together_and_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('quota = "2 gigs"\n\n[policy.a]\nmost = "1s"\n')
    variables = {"LEASEHOLD_CONFIG": "my.toml", "LEASEHOLD_LISTEN": "here"}
    for name, code in (("serve", 2), ("config", 1)):
        said = run(name, "--min-ttl", "2", cwd=tmp_path, variables=variables)
        assert said.returncode == code
        assert said.stdout == ""
        places = [line.split(": ")[1] for line in said.stderr.splitlines()]
        assert places == ["--min-ttl", "LEASEHOLD_LISTEN", "my.toml:1", "my.toml:4"]
    assert [file.name for file in tmp_path.iterdir()] == ["my.toml"]


@pytest.mark.parametrize(
    "text",
    ["", ":", "2379", "127.0.0.1", "127.0.0.1:", ":2379", "127.0.0.1:x", "127.0.0.1:65536",
     "127.0.0.1:-1", "::1:2379"],
)  # fmt: skip
def test_a_bad_address_is_refused_with_what_would_be_right(text: str, tmp_path: Path) -> None:
    said = run("config", f"--listen={text}", cwd=tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("leasehold: --listen: ")
    assert said.stderr.count("\n") == 1
    assert "127.0.0.1" in said.stderr


def test_an_unknown_variable_is_warned_of_and_serving_goes_on() -> None:
    with serving(*MEMORY, variables={"LEASEHOLD_QOTA": "1GiB"}) as server:
        _, errors = server.end(signal.SIGTERM)
    assert errors.count("\n") == 1
    assert "warning: LEASEHOLD_QOTA is set, but is not a setting of the server" in errors


# What is shown.


def test_what_config_prints_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    flags = ("--listen", "unix:/a b", "--listen", "[::1]:0", "--policy", "p.q:min=1s,max=2s",
             "--compaction-age", "off", "--compaction-revisions", "off", "--insecure",
             "--data-dir", 'x"\\y', "--quota", "5000000")  # fmt: skip
    said = run("config", *flags, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    tomllib.loads(said.stdout)
    (tmp_path / "leasehold.toml").write_text(said.stdout)
    again = run("config", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (tmp_path / "kept.toml").write_text(said.stdout)
    first = read_settings({"config": str(tmp_path / "kept.toml")}, {}).settings
    assert str(first.directory) == 'x"\\y'
    assert [str(each) for each in first.listen] == ["unix:/a b", "[::1]:0"]
    strip = re.compile(r" +# .*$", re.MULTILINE)
    assert strip.sub("", again.stdout) == strip.sub("", said.stdout)


def test_whoever_has_seen_enough_of_it_gets_no_traceback() -> None:
    shell = '"$@" | true'
    said = subprocess.run(  # noqa: S603
        ["sh", "-c", shell, "sh", *command("config")],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env=environment(),
    )
    assert said.stderr == ""


def test_config_looks_at_certificates_as_well(tmp_path: Path) -> None:
    (tmp_path / "leasehold.toml").write_text('\ncert = "no.pem"\nkey = "no.key"\n')
    said = run("config", cwd=tmp_path)
    assert said.returncode == 1
    assert said.stderr == (
        "leasehold: leasehold.toml:2: no.pem: the certificate cannot be read: "
        "No such file or directory\n"
    )


# Other commands have the same directory.


def test_backup_and_check_find_the_directory_where_serve_does(tmp_path: Path) -> None:
    (tmp_path / "leasehold.toml").write_text('data-dir = "from-file"\nquota = "wrong"\n')
    variables = {"LEASEHOLD_DATA_DIR": "from-variable"}
    for name in ("from-file", "from-variable"):
        with serving("--data-dir", tmp_path / name) as server:
            server.end(signal.SIGTERM)
    assert run("check", cwd=tmp_path).stdout.startswith("from-file is in order")
    said = run("backup", "b.db", cwd=tmp_path, variables=variables)
    assert "of from-variable is in b.db" in said.stdout
    said = run("check", cwd=tmp_path, variables={"LEASEHOLD_DATA_DIR": "memory:"})
    assert said.returncode == 1
    assert said.stderr == (
        "leasehold: LEASEHOLD_DATA_DIR: the data directory is memory:, which stores nothing: "
        "name a directory on the command line\n"
    )
    (tmp_path / "leasehold.toml").write_text("data-dir = \n")
    said = run("check", cwd=tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("leasehold: leasehold.toml:1: not valid TOML")
    assert run("check", "from-file", cwd=tmp_path).returncode == 0


# Logs.


def test_logs_for_machines_are_json_lines_from_first_to_last(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = ("--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0", "--log-format", "json")
    variables = {"LEASEHOLD_ODD": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: S603
            command("serve", *flags), stdout=output, stderr=output, env=environment(variables)
        )
    with process:
        try:
            until(lambda: "try it" in log.read_text())
            process.terminate()
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert datetime.fromisoformat(line["time"]).tzinfo is UTC
        assert line["time"].endswith("Z")
    assert [line["level"] for line in lines] == ["warning", "info", "info", "info"]
    assert lines[1]["data_dir"] == str(tmp_path / "data")
    (listen,) = lines[1]["listen"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", listen)
    assert lines[-1]["message"] == "leasehold has stopped; everything is on disk"


def until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_what_goes_wrong_is_a_json_line_as_well(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        said = run("serve", *MEMORY, "--listen", listen, "--log-format", "json")
    assert said.returncode == 1
    (line,) = map(json.loads, said.stderr.splitlines())
    assert line["level"] == "error"
    assert line["message"].startswith(f"cannot listen on {listen}: ")


def test_the_level_of_logs_is_the_least_that_is_logged() -> None:
    variables = {"LEASEHOLD_ODD": "1", "LEASEHOLD_LOG_LEVEL": "error"}
    with serving(*MEMORY, variables=variables) as server:
        _, errors = server.end(signal.SIGTERM)
    assert errors == ""


def test_whoever_does_not_read_the_logs_stops_nobody(tmp_path: Path) -> None:
    """Far more is logged than a pipe takes, and nobody reads it; then the pipe is closed."""
    flags = (*MEMORY, "--listen", "127.0.0.1:0", "--log-level", "debug", "--log-format", "json")
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [*command()[:-2], "-c", NOISY, *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        )
    with process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with client_of(port) as client:
                client.put(b"a", b"1")
                os.close(reader)
                client.put(b"a", b"2")
            process.terminate()
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()


NOISY = """\
import logging, sys
from leasehold.cli import main, serve
started = serve.ServerOutput.started
def noisy(self, settings, bound, *rest):
    started(self, settings, bound, *rest)
    for number in range(20_000):
        logging.getLogger("noise").debug("x" * 100)
    print(bound[0].port, flush=True)
serve.ServerOutput.started = noisy
sys.exit(main(["serve", *sys.argv[1:]]))
"""


def test_the_number_of_streams_can_be_set() -> None:
    with serving(*MEMORY, "--max-streams", "7") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(frames.PREFACE + frames.settings({}))
            received = b""
            while len(received) < 9 + 6:
                received += client.recv(65_536)
        length = int.from_bytes(received[:3], "big")
        told = frames.parse_settings(received[9 : 9 + length])
        assert told[frames.Setting.MAX_CONCURRENT_STREAMS] == 7
