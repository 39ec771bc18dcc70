"""h2load, nghttp2's load generator: many thousands of streams, and not one that fails."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from leasehold.grpc.protocol import framed
from leasehold.wire import rpc_pb2
from tests.interop.demo import DEADLINE_S
from tests.interop.grpcio_callers import GrpcioCaller
from tests.support.servers import RunningServer, leasehold_command, running

H2LOAD: Final = shutil.which("h2load")
LOAD_S: Final = 50.0
"""For one load, on a machine that has others to do as well."""

STREAMS: Final = 20_000
RANGE: Final = "/etcdserverpb.KV/Range"
_REQUESTS: Final = re.compile(
    r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, "
    r"(\d+) errored, (\d+) timeout"
)
_CODES: Final = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")
_DATA: Final = re.compile(r"\((\d+)\) data")

pytestmark = pytest.mark.skipif(
    H2LOAD is None, reason="needs h2load (on Debian: apt install nghttp2-client)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The whole server, in a process of its own."""
    with running(leasehold_command, tmp_path_factory.mktemp("h2load")) as started:
        yield started


@dataclass(frozen=True)
class Shape:
    """How a load comes in."""

    connections: int
    streams_each: int


def load(url: str, shape: Shape, body_bytes: int, *arguments: str) -> None:
    """Have all calls made, and see that each has succeeded, with a body of this length."""
    assert H2LOAD is not None
    how = ["-n", str(STREAMS), "-c", str(shape.connections), "-m", str(shape.streams_each)]
    done = subprocess.run(  # noqa: S603  on loopback
        [H2LOAD, *how, *arguments, url], capture_output=True, timeout=LOAD_S, check=False
    )
    report = done.stdout.decode()
    assert done.returncode == 0, report + done.stderr.decode()
    requests, codes, data = (each.search(report) for each in (_REQUESTS, _CODES, _DATA))
    assert requests is not None, report
    assert codes is not None, report
    assert data is not None, report
    expected = [STREAMS, STREAMS, STREAMS, 0, 0, 0]
    assert [int(number) for number in requests.groups()] == expected, report
    assert [int(number) for number in codes.groups()] == [STREAMS, 0, 0, 0], report
    assert int(data[1]) == STREAMS * body_bytes, report


shapes = pytest.mark.parametrize("shape", [Shape(10, 200), Shape(100, 32)], ids=str)


@shapes
def test_thousands_of_calls(server: RunningServer, tmp_path: Path, shape: Shape) -> None:
    message = rpc_pb2.RangeRequest(key=b"nothing").SerializeToString()
    with closing(GrpcioCaller(server.endpoint)) as client:
        answer = client.ask(RANGE, message).answer
    file = tmp_path / "message"
    file.write_bytes(framed(message))
    load(
        f"http://{server.endpoint}{RANGE}",
        shape,
        len(framed(answer)),  # one that has failed has no message
        *("-d", str(file), "-H", "content-type: application/grpc", "-H", "te: trailers"),
    )


@shapes
def test_thousands_of_pages(server: RunningServer, shape: Shape) -> None:
    with urllib.request.urlopen(f"http://{server.endpoint}/health", timeout=DEADLINE_S) as page:
        body = page.read()
    load(f"http://{server.endpoint}/health", shape, len(body))
