"""Node's own HTTP/2, which is nghttp2: as a client of our server, and as a server for our channel.

Both speak gRPC by hand, in a script beside this file. grpcio goes through the same as our channel.
"""

import json
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.errors import Status
from tests.interop.callers import Caller
from tests.interop.conftest import CALLERS
from tests.interop.demo import DEADLINE_S, Kind
from tests.interop.our_demo import OurServer

HERE: Final = Path(__file__).parent
NODE: Final = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node (https://nodejs.org)")


@pytest.fixture(scope="module")
def results(our_server: OurServer) -> Any:
    """What has come back to Node's client."""
    assert NODE is not None
    command = [NODE, str(HERE / "node_client.mjs"), f"http://{our_server.target}"]
    done = subprocess.run(  # noqa: S603  our own script
        command, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("what", "answers"),
    [
        ("echo", ["hello"]),
        ("empty", [""]),
        ("count", ["0 ", "1 ", "2 "]),
        ("sum", ["6"]),
        ("chat", ["a", "b", "c"]),
        ("metadata", ["!"]),
    ],
)
def test_nodes_calls_are_answered(results: Any, what: str, answers: list[str]) -> None:
    outcome = results[what]
    assert (outcome["answers"], outcome["status"]) == (answers, Status.OK)
    assert outcome["code"] == 0


def test_node_hears_of_failures(results: Any) -> None:
    failed = results["fail"]
    assert failed["answers"] == ["0 ", "1 "]
    assert (failed["status"], failed["message"]) == (Status.NOT_FOUND, "Grüße ☃")
    assert results["timeout"]["status"] == Status.DEADLINE_EXCEEDED
    assert results["unknown"]["status"] == Status.UNIMPLEMENTED


def test_node_hears_metadata(results: Any) -> None:
    assert results["metadata"]["text"] == "said"


def test_node_may_say_much_and_call_often(results: Any) -> None:
    assert results["longs"] is True
    assert results["crowd"] == [str(index) for index in range(500)]


def test_node_gets_pages(results: Any) -> None:
    assert results["health"] == {"status": 200, "body": "healthy", "code": 0}
    assert results["head"] == {"status": 200, "body": "", "code": 0}
    assert results["nothing"]["status"] == 404


@pytest.fixture(scope="module")
def node_port() -> Iterator[int]:
    """The port of Node's server."""
    assert NODE is not None
    command = [NODE, str(HERE / "node_server.mjs")]
    with subprocess.Popen(  # noqa: S603  our own script
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], DEADLINE_S)[0], "no port was printed"
            yield int(process.stdout.readline())
            process.stdin.close()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


@pytest.fixture(params=CALLERS)
def client(request: pytest.FixtureRequest, node_port: int) -> Iterator[Caller]:
    """Each client, of Node's server."""
    with closing(CALLERS[request.param](f"127.0.0.1:{node_port}")) as client:
        yield client


@pytest.mark.parametrize("size", [0, 1, 16_384, 1_000_000])
def test_node_answers(client: Caller, size: int) -> None:
    assert client.ask("/node.Service/Echo", bytes(size)).answer == bytes(size)


def test_node_answers_a_stream_as_it_comes(client: Caller) -> None:
    call = client.open(Kind.MANY_TO_MANY, "/node.Service/Echo")
    for index in range(20):
        call.send(b"%d" % index)
        assert call.receive() == b"%d" % index
    call.end()
    assert call.outcome().status == Status.OK


def test_node_answers_many_at_once(client: Caller) -> None:
    calls = [
        client.open(Kind.ONE_TO_ONE, "/node.Service/Echo", b"%d" % index) for index in range(300)
    ]
    assert [call.outcome().answer for call in calls] == [b"%d" % index for index in range(300)]


@pytest.mark.parametrize(("method", "answers"), [("Fail", ()), ("Late", (b"?",))])
def test_nodes_failures_are_heard(client: Caller, method: str, answers: tuple[bytes]) -> None:
    path = f"/node.Service/{method}"
    outcome = client.call(Kind.MANY_TO_MANY, path, b"?", metadata=(("x-name", "any"),))
    assert (outcome.status, outcome.message) == (Status.NOT_FOUND, "Grüße")
    assert outcome.trailers == (("x-why", "because"),)
    assert outcome.answers == answers


@pytest.mark.parametrize("client", ["ours"], indirect=True)
def test_nodes_informational_answer_is_passed_over(client: Caller) -> None:
    """By ours only: grpcio takes it for the answer."""
    assert client.ask("/node.Service/Early", b"?").answer == b"?"


def test_node_resets_a_call(client: Caller) -> None:
    assert client.ask("/node.Service/Reset", b"?").status == Status.CANCELLED
    assert client.ask("/node.Service/Echo", b"and then").answer == b"and then"


def test_node_never_answers(client: Caller) -> None:
    outcome = client.ask("/node.Service/Sleep", b"?", timeout_s=0.1)
    assert outcome.status == Status.DEADLINE_EXCEEDED


@pytest.mark.parametrize("client", ["ours"], indirect=True)
def test_node_says_good_bye_behind_an_answer(client: Caller) -> None:
    """By ours only: a call that crosses the good-bye is not made again by grpcio."""
    for _ in range(3):
        assert client.ask("/node.Service/Leave", b"?", waits=True).answer == b"?"
    assert client.ask("/node.Service/Echo", b"and then", waits=True).answer == b"and then"
