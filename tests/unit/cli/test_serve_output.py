"""What the server says of itself: lines that can be used as they are printed."""

import errno
import io
import os
import sys
from pathlib import Path

import pytest

from leasehold.basics.addresses import TcpAddress, parse_address
from leasehold.cli import main
from leasehold.cli.serve import ServerOutput, taken, try_it
from leasehold.server.settings import Settings, TlsFiles

PLAIN = Settings()
SECURE = Settings(tls=TlsFiles(Path("my cert.pem"), Path("k")))
MUTUAL = Settings(tls=TlsFiles(Path("c"), Path("k"), Path("ca")))


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (["127.0.0.1:5"], "127.0.0.1:5"),
        (["[::1]:5"], "'[::1]:5'"),
        (["0.0.0.0:5"], "127.0.0.1:5"),
        (["[::]:5"], "'[::1]:5'"),
        (["unix:/a", "127.0.0.1:5"], "127.0.0.1:5"),
        (["unix:/a b"], "'unix:///a b'"),
    ],
)
def test_the_line_to_try_is_for_a_shell(bound: list[str], words: str) -> None:
    line = try_it(PLAIN, [parse_address(each) for each in bound])
    assert line == f"etcdctl --endpoints {words} put greeting hello"


@pytest.mark.parametrize(
    ("bound", "certified", "host"),
    [
        ("10.0.0.1:5", [], "10.0.0.1"),
        ("0.0.0.0:5", ["a.org", "127.0.0.1"], "127.0.0.1"),
        ("0.0.0.0:5", ["*.a.org", "b.org"], "b.org"),
        ("127.0.0.1:5", ["b.org", "localhost"], "localhost"),
        ("127.0.0.1:5", ["*.a.org"], "127.0.0.1"),
    ],
)
def test_with_tls_the_line_names_the_certificate_and_a_host_that_it_is_for(
    bound: str, certified: list[str], host: str
) -> None:
    words = f"etcdctl --endpoints https://{host}:5 --cacert 'my cert.pem'"
    assert try_it(SECURE, [parse_address(bound)], certified) == f"{words} put greeting hello"
    words = (
        f"etcdctl --endpoints https://{host}:5 --cacert c --cert CLIENT.pem --key CLIENT-KEY.pem"
    )
    assert try_it(MUTUAL, [parse_address(bound)], certified) == f"{words} put greeting hello"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (
            errno.EADDRINUSE,
            "stop the process that uses it, or choose another address with --listen, such as [::",
        ),
        (
            errno.EADDRNOTAVAIL,
            "this machine does not have that address; choose another with --listen",
        ),
        (errno.EACCES, "choose a port of at least 1024 with --listen, or a writable path"),
        (errno.EIO, "choose another address with --listen"),
    ],
)
def test_an_address_that_cannot_be_had_comes_with_advice(number: int, advice: str) -> None:
    said = taken(OSError(number, "cannot listen on X: why"), [TcpAddress("::1", 5)])
    assert said.startswith(f"cannot listen on X: why: {advice}")


def test_nobody_who_listens_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    for stream in (None, Broken()):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        ServerOutput("console").line("hello")
        assert ServerOutput("console").error("alas") == 1


@pytest.mark.parametrize(("command", "code"), [("serve", 2), ("config", 1)])
def test_dns_without_its_package_is_refused(
    command: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("leasehold.cli.serve.find_spec", lambda _name: None)
    assert main([command, "--data-dir", "memory:", "--dns", "127.0.0.1:8600"]) == code
    assert capsys.readouterr().err == (
        "leasehold: --dns: dns requires the package dnspython: install it with "
        "pip install 'leasehold[dns]'\n"
    )


def test_an_address_for_dns_that_is_taken_names_its_option() -> None:
    error = OSError(errno.EADDRINUSE, "cannot answer DNS queries on [::1]:53: in use")
    assert taken(error, [TcpAddress("::1", 53)], "--dns") == (
        "cannot answer DNS queries on [::1]:53: in use: stop the process that uses it, or choose "
        "another address with --dns, such as [::1]:0"
    )
