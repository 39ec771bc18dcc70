"""What is said of certificates that are not good now, and of clients that TLS keeps out."""

import asyncio
import logging
import re
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from leasehold.basics.sockets import PendingProtocol
from leasehold.basics.tls import server_tls
from leasehold.cli.tls_files import names_in, out_of_date
from leasehold.serving.accepting import Acceptor
from leasehold.serving.limited_log import LINES
from leasehold.serving.listening import UnlimitedSlots
from tests.support.serve_command import WITHIN_S, run, serving

ENDED = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)


def issue(place: Path, ends: datetime | None) -> tuple[Path, Path]:
    made = trustme.CA().issue_cert("localhost", "127.0.0.1", not_after=ends)
    cert, key = place / "server.pem", place / "server.key"
    cert.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
    made.private_key_pem.write_to_path(key)
    return cert, key


def test_a_certificate_that_has_ended_is_warned_of_and_served(tmp_path: Path) -> None:
    cert, key = issue(tmp_path, ENDED)
    said = f"--cert: the certificate in {cert} ended on 2020-01-02 03:04:05 UTC, and clients will"
    flags = ("--data-dir", "memory:", "--cert", cert, "--key", key)
    with serving(*flags) as server:
        assert "serves" in server.greeting
        assert "etcdctl" in server.line()
        _, errors = server.end(signal.SIGTERM)
    assert said in errors
    assert errors.count("\n") == 1
    looked = run("config", *flags)
    assert looked.returncode == 0
    assert said in looked.stderr


def test_a_certificate_is_good_between_its_dates_only(tmp_path: Path) -> None:
    cert, key = issue(tmp_path, ENDED)
    context = server_tls(cert, key)
    end_s = ENDED.timestamp()
    assert "ended on 2020-01-02" in (out_of_date(cert, context, end_s + 1) or "")
    assert out_of_date(cert, context, end_s) is None
    assert "begins on " in (out_of_date(cert, context, 0) or "")
    assert names_in(cert, context) == ["localhost", "127.0.0.1"], "it is read all the same"


def test_failed_handshakes_are_logged_at_a_limited_rate_with_the_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = server_tls(*issue(tmp_path, None))
    caplog.set_level(logging.INFO, "leasehold.serving.accepting")

    async def main() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        acceptor = Acceptor(sock, _make_pending, context, 10.0, 1.0, UnlimitedSlots())
        try:
            for _ in range(2 * LINES.burst):
                await _refused(acceptor, sock.getsockname()[1])
        finally:
            acceptor.close()

    asyncio.run(main())
    assert len(caplog.messages) == LINES.burst
    assert re.match(r"the TLS handshake with 127.0.0.1:\d+ failed: \[SSL: ", caplog.messages[0])


def _make_pending() -> PendingProtocol[asyncio.BaseProtocol]:
    return PendingProtocol(asyncio.Protocol, lambda _: True)


async def _refused(acceptor: Acceptor, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: me\r\n\r\n")
    async with asyncio.timeout(WITHIN_S):
        while await reader.read(1000):
            pass
        await asyncio.gather(*acceptor._handshakes)  # it hangs up before it logs
    writer.close()
