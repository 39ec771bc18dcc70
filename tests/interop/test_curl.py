"""curl, for whoever looks whether the server is there: HTTP/2 in clear and with TLS, HTTP/1.1."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import trustme

from leasehold.basics.tls import server_tls
from tests.interop import demo
from tests.interop.demo import DEADLINE_S
from tests.interop.our_demo import OurServer

CURL: Final = shutil.which("curl")
HTTP2: Final = "--http2-prior-knowledge"
HTTP1: Final = "--http1.1"
MARK: Final = "\n--written by curl--\n"
FACTS: Final = '["%{http_code}", "%{http_version}", "%{content_type}", %{num_connects}]'

both_versions = pytest.mark.parametrize(("version", "spoken"), [(HTTP2, "2"), (HTTP1, "1.1")])


@cache
def _why_not() -> str:
    """Say why curl cannot be used here, if so."""
    if CURL is None:
        return "needs curl (https://curl.se)"
    version = subprocess.run(  # noqa: S603
        [CURL, "--version"], capture_output=True, check=True, timeout=DEADLINE_S
    )
    return "" if b"HTTP2" in version.stdout else "needs a curl that was built with HTTP/2"


pytestmark = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


@dataclass(frozen=True)
class Page:
    """What curl got."""

    status: int
    version: str
    content_type: str
    body: str
    connects: int = 1


def curl(*arguments: str) -> Page:
    """Get something; curl itself must have nothing to complain about."""
    assert CURL is not None
    done = subprocess.run(  # noqa: S603  on loopback
        [
            CURL,
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--write-out",
            MARK + FACTS,
            *arguments,
        ],
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    body, _, written = done.stdout.decode().rpartition(MARK)
    status, version, content_type, connects = json.loads(written)
    return Page(int(status), version, content_type, body, connects)


@both_versions
def test_health(our_server: OurServer, version: str, spoken: str) -> None:
    page = curl(version, f"http://{our_server.target}/health")
    assert page == Page(200, spoken, "text/plain", "healthy")


@both_versions
@pytest.mark.parametrize("path", ["/", "/nothing", "/health/", "/%20"])
def test_there_is_nothing_else(our_server: OurServer, version: str, spoken: str, path: str) -> None:
    page = curl(version, f"http://{our_server.target}{path}")
    assert (page.status, page.version, page.body) == (404, spoken, "404 Not Found\n")


@both_versions
def test_head(our_server: OurServer, version: str, spoken: str) -> None:
    page = curl(version, "--head", f"http://{our_server.target}/health")
    assert (page.status, page.version) == (200, spoken)
    assert "content-length: 7" in page.body.lower()
    assert "healthy" not in page.body


@both_versions
@pytest.mark.parametrize(("size", "status"), [(1, 405), (100_000, 405), (10_000_000, 413)])
def test_a_body_that_nobody_wants(
    our_server: OurServer, tmp_path: Path, size: int, status: int, version: str, spoken: str
) -> None:
    file = tmp_path / "body"
    file.write_bytes(bytes(size))
    page = curl(version, "--data-binary", f"@{file}", f"http://{our_server.target}/health")
    assert (page.status, page.version) == (status, spoken)


def test_a_post_that_is_no_grpc_is_told_so(our_server: OurServer) -> None:
    url = f"http://{our_server.target}{demo.ECHO}"
    assert curl(HTTP2, "--data", "x", url).status == 415
    assert curl(HTTP2, url).status == 405


def test_a_call_of_grpc_by_hand(our_server: OurServer, tmp_path: Path) -> None:
    message, answer = tmp_path / "message", tmp_path / "answer"
    message.write_bytes(b"\0\0\0\0\5hello")
    page = curl(
        *(HTTP2, "--data-binary", f"@{message}", "--output", str(answer)),
        *("--header", "content-type: application/grpc", "--header", "te: trailers"),
        f"http://{our_server.target}{demo.LATER}",
    )
    assert (page.status, page.content_type) == (200, "application/grpc")
    assert answer.read_bytes() == b"\0\0\0\0\5hello"


def test_an_upgrade_that_is_not_taken_is_answered_all_the_same(our_server: OurServer) -> None:
    page = curl("--http2", f"http://{our_server.target}/health")
    assert page == Page(200, "1.1", "text/plain", "healthy")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server with TLS, and the file that says whom to trust."""
    place, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_pem.write_to_path(place / "key")
    for part in made.cert_chain_pems:
        part.write_to_path(place / "cert", append=True)
    authority.cert_pem.write_to_path(place / "authority")
    server = OurServer(tls=server_tls(place / "cert", place / "key"))
    yield server.target, str(place / "authority")
    server.close()


@pytest.mark.parametrize(("version", "spoken"), [("--http2", "2"), (HTTP2, "2"), (HTTP1, "1.1")])
def test_health_with_tls(secure: tuple[str, str], version: str, spoken: str) -> None:
    target, authority = secure
    page = curl(version, "--cacert", authority, f"https://{target}/health")
    assert page == Page(200, spoken, "text/plain", "healthy")


@pytest.mark.parametrize(("version", "spoken"), [("--http2", "2"), (HTTP1, "1.1")])
def test_one_connection_for_several_pages(
    secure: tuple[str, str], version: str, spoken: str
) -> None:
    """With TLS: in clear, curl 7.88 breaks HTTP/2 by itself (curl's issue 10634)."""
    target, authority = secure
    url = f"https://{target}/health"
    page = curl(version, "--cacert", authority, url, url, url)
    assert (page.status, page.version, page.body.count("healthy")) == (200, spoken, 3)
    assert page.connects == 0, "the last page came over a connection that was there"
