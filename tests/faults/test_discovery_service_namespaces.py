"""The discovery service on a network of its own, for a client that receives no multicast."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.faults.test_discovery_namespaces import TTL_S, World, until
from tests.support.namespaces import lan_or_skip
from tests.support.serve_command import environment

CLIENT: Final = Path(__file__).with_name("discovery_client.py")


class Client:
    """The process of a client, and what it has printed."""

    def __init__(self, world: World, host: str, endpoint: str, output: Path) -> None:
        self._output = output
        self._log = output.with_suffix(".log")  # it tells of a lost connection after a stop
        with output.open("wb") as file, self._log.open("wb") as log:
            self._process: subprocess.Popen[bytes] = world.lan.start(
                host,
                [sys.executable, str(CLIENT), endpoint, "a"],
                stdout=file,
                stderr=log,
                env=environment(),
            )

    def expect(self, what: str, registrars: set[str]) -> int:
        """Wait until its own set is this, and so is that of the service; return the number."""
        until(lambda: self._last()[1:] == [sorted(registrars)] * 2, f"{what}: {registrars}")
        number = self._last()[0]
        assert isinstance(number, int)
        return number

    def _last(self) -> list[object]:
        whole = self._output.read_text("utf-8").rpartition("\n")[0]
        log = self._log.read_text("utf-8")
        assert "Traceback" not in log, log
        line = whole.rpartition("\n")[2]
        return list(json.loads(line)) if line else [0, [], []]

    def signal(self, number: signal.Signals) -> None:
        """Stop it, or let it go on."""
        os.kill(self._process.pid, number)


def id_at(world: World, host: str, output: Path) -> str:
    """Return the id of the registrar at a host."""
    address = f"leasehold://{world.lan.address(host)}:2379"
    with output.open("wb") as file:
        command = [sys.executable, "-m", "leasehold", "discover", "--json", "--locator", address]
        process = world.lan.start(host, command, stdout=file, env=environment())
    assert process.wait(60.0) == 0
    return str(json.loads(output.read_text("utf-8").splitlines()[0])["registrars"][0]["id"])


@pytest.mark.slow
def test_a_client_without_multicast_that_sleeps_has_the_right_set(tmp_path: Path) -> None:
    with lan_or_skip() as lan:
        world = World(lan, tmp_path)
        service, one, other, third, laptop = (lan.host() for _ in range(5))
        lan.deafen(laptop)
        world.serve(service, groups="")
        killed = world.serve(one)
        world.serve(other)
        ids = [id_at(world, host, tmp_path / host) for host in (one, other)]
        endpoint = f"{lan.address(service)}:2379"
        client = Client(world, laptop, endpoint, tmp_path / "client")
        number = client.expect("it gets everything", set(ids))
        client.signal(signal.SIGSTOP)
        killed.kill()
        world.set_groups(other, "b")
        world.serve(third)
        new = id_at(world, third, tmp_path / third)
        # The service goes on for it: seen by another client, which is awake.
        awake = Client(world, service, endpoint, tmp_path / "awake")
        awake.expect("the service has noticed everything", {new})
        until(lambda: _undelivered(world, service, tmp_path) == 0, "the mailbox has all", 8 * TTL_S)
        client.signal(signal.SIGCONT)
        assert client.expect("its set is right after it has slept", {new}) > number
        world.set_groups(other, "a", "b")
        client.expect("it goes on", {new, ids[1]})


def _undelivered(world: World, host: str, directory: Path) -> int:
    """Return the number of undelivered events, and of registrars that are known to be gone."""
    output = directory / "metrics"
    url = f"http://{world.lan.address(host)}:2379/metrics"
    with output.open("wb") as file:
        code = f"import urllib.request as u; print(u.urlopen('{url}').read().decode())"
        process = world.lan.start(host, [sys.executable, "-c", code], stdout=file)
    assert process.wait(60.0) == 0
    values = dict(
        line.rsplit(" ", 1)
        for line in output.read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    )
    return int(float(values["leasehold_events_undelivered"]))
