"""What a request may ask for: the same bytes in the first line to etcd and to ours."""

import socket
from typing import Final

import pytest

from tests.support.servers import RunningServer

TIMEOUT_S: Final = 60.0
TARGETS: Final = {
    b"/health": 200,
    b"/health?\xff": 200,
    b"/health?%zz": 200,
    b'/health?<>"#': 200,
    b"/health\xff": 404,
    b"/he\xc2\x85lth": 404,
    b"/he[lth": 404,
    b"/%00": 404,
    b"/hea\rlth": 400,
    b"/hea\0lth": 400,
    b"/hea\tlth": 400,
    b"/hea\x1flth": 400,
    b"/hea\x7flth": 400,
    b"/health?\x01": 400,
    b"http://x/hea\x01lth": 400,
    b"/he%zzlth": 400,
    b"health": 400,
    b"*": 400,
}


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_a_target_is_taken_or_refused_by_its_octets(server: RunningServer, target: bytes) -> None:
    assert status_of(server.endpoint, target) == TARGETS[target]


def status_of(endpoint: str, target: bytes) -> int:
    """Ask for something; give the status of the answer."""
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(
            b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        with connection.makefile("rb") as answer:
            return int(answer.readline().split(b" ")[1])
