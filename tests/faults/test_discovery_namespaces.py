"""Discovery between real servers and clients on a network of their own.

Announcements, goodbyes, changed groups, a killed server, silence and a partition, with real
multicast DNS. The clients are `leasehold discover --watch`.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.cli.parser import NO_SERVER
from tests.support.namespaces import Lan, lan_or_skip
from tests.support.serve_command import command, environment
from tests.support.servers import etcd_program

TTL_S: Final = 4
"""Of the announcements: 120 s by default."""

WITHIN_S: Final = 60.0
"""For everything that has no time limit of its own; the machine may be busy."""

POLL_S: Final = 0.05


class World:
    """A network, and the programs on its hosts."""

    def __init__(self, lan: Lan, directory: Path) -> None:
        self.lan = lan
        self._directory = directory
        self._outputs = 0

    def serve(self, host: str, *arguments: str, groups: str = "a") -> "subprocess.Popen[bytes]":
        """Start a server, and wait until it serves."""
        listen = f"{self.lan.address(host)}:2379"
        given = ("--listen", listen, "--insecure", "--announcement-ttl", f"{TTL_S}s")
        data = () if "--engine" in arguments else ("--data-dir", "memory:")
        output = self._output()
        wanted = ("--groups", groups) if groups else ()
        process = self._start(host, ("serve", *given, *data, *wanted, *arguments), output)
        until(lambda: "leasehold serves" in output.read_text("utf-8"), "the server has started")
        return process

    def run(self, host: str, *arguments: str) -> int:
        """Run a command to its end; return its exit code."""
        return self._start(host, arguments, self._output()).wait(WITHIN_S)

    def watch(self, host: str, *arguments: str) -> "Watcher":
        """Start a client."""
        output = self._output()
        self._start(host, ("discover", "--watch", "--json", *arguments), output)
        return Watcher(output)

    def set_groups(self, host: str, *groups: str) -> None:
        """Change the groups of the registrar at a host."""
        self.admin(host, "set-groups", *groups)

    def admin(self, host: str, *arguments: str) -> None:
        """Change the configuration of the server at a host."""
        endpoint = f"{self.lan.address(host)}:2379"
        assert self.run(host, "admin", *arguments, "--endpoint", endpoint) == 0

    def is_found(self, host: str, attribute: str) -> bool:
        """Return whether the registrar at a host has a service with an attribute."""
        endpoint = f"{self.lan.address(host)}:2379"
        wanted = ("registry", "lookup", "--attribute", attribute, "--endpoint", endpoint)
        return self.run(host, *wanted) == 0

    def _start(
        self, host: str, arguments: tuple[str, ...], output: Path
    ) -> "subprocess.Popen[bytes]":
        with output.open("wb") as file:
            return self.lan.start(
                host, command(*arguments), stdout=file, stderr=file, env=environment()
            )

    def _output(self) -> Path:
        self._outputs += 1
        return self._directory / f"output-{self._outputs}"


class Watcher:
    """What a client has printed."""

    def __init__(self, output: Path) -> None:
        self._output = output

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events so far."""
        whole = self._output.read_text("utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events so far."""
        return [each["event"] for each in self.events]

    def expect(self, *kinds: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """Wait until these are the events; return the last one."""
        until(lambda: len(self.kinds) >= len(kinds), f"events {kinds}", within_s)
        assert self.kinds == list(kinds)
        return self.events[-1]


def until(condition: Any, what: str, within_s: float = WITHIN_S) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(POLL_S)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with lan_or_skip() as lan:
        yield World(lan, tmp_path)


def test_a_server_announces_itself_its_changed_groups_and_its_end(world: World) -> None:
    server, client = world.lan.host(), world.lan.host()
    wanting_a, wanting_b = world.watch(client, "--group", "a"), world.watch(client, "--group", "b")
    process = world.serve(server, groups="")
    world.set_groups(server, "a")  # it is announced from now on
    found = wanting_a.expect("discovered")
    assert found["groups"] == ["a"]
    assert found["endpoints"] == [f"http://{world.lan.address(server)}:2379"]
    late = world.watch(client)  # all groups; it asks for what is there
    late.expect("discovered")
    world.set_groups(server, "a", "b")
    assert wanting_a.expect("discovered", "changed")["groups"] == ["a", "b"]
    assert wanting_b.expect("discovered")["id"] == found["id"]
    world.set_groups(server, "b")
    wanting_a.expect("discovered", "changed", "discarded")
    wanting_b.expect("discovered", "changed")  # each is another process, and may be behind
    late.expect("discovered", "changed", "changed")
    process.terminate()
    wanting_b.expect("discovered", "changed", "discarded")
    late.expect("discovered", "changed", "changed", "discarded")


def test_a_service_of_a_server_joins_the_registrars_of_a_group(world: World) -> None:
    one, other = world.lan.host(), world.lan.host()
    process = world.serve(other, groups="")
    world.admin(other, "attributes", "renewal", "--add", "Location:floor=3")
    world.admin(other, "join-groups", "renewal", "--add", "a")
    world.serve(one, groups="")
    world.set_groups(one, "a")  # it is found from now on
    until(lambda: world.is_found(one, "Location:floor=3"), "the service has joined")
    world.set_groups(one, "b")
    until(lambda: not world.is_found(one, "Location:floor=3"), "the service has left")
    world.admin(other, "join-groups", "renewal", "--all")
    until(lambda: world.is_found(one, "Location:floor=3"), "the service has joined again")
    process.terminate()
    process.wait(WITHIN_S)
    assert not world.is_found(one, "Location:floor=3"), "it was cancelled"


def test_a_killed_server_is_discarded_within_twice_the_ttl(world: World) -> None:
    server, client = world.lan.host(), world.lan.host()
    process = world.serve(server)
    watcher = world.watch(client, "--group", "a")
    watcher.expect("discovered")
    time.sleep(2 * TTL_S)  # it is announced again and again: nothing happens
    watcher.expect("discovered")
    process.kill()
    killed_at = time.monotonic()
    watcher.expect("discovered", "discarded", within_s=2 * TTL_S)
    assert time.monotonic() - killed_at > 1.0  # only silence tells


def test_a_silent_server_that_answers_is_kept_until_it_is_killed(world: World) -> None:
    server, client = world.lan.host(), world.lan.host()
    process = world.serve(server)
    watcher = world.watch(client, "--group", "a")
    watcher.expect("discovered")
    for host in (server, client):
        world.lan.deafen(host)
    time.sleep(3 * TTL_S)
    watcher.expect("discovered")
    assert world.run(client, "discover", "--group", "a", "--timeout", f"{TTL_S}s") == NO_SERVER
    process.kill()
    watcher.expect("discovered", "discarded", within_s=2 * TTL_S)


def test_a_partition_discards_and_its_end_discovers_again(world: World) -> None:
    server, client, same_side = (world.lan.host() for _ in range(3))
    world.serve(server)
    watcher = world.watch(client, "--group", "a")
    other = world.watch(same_side, "--group", "a")
    found = watcher.expect("discovered")
    other.expect("discovered")
    world.lan.cut(client)
    watcher.expect("discovered", "discarded")
    world.lan.join(client)
    assert watcher.expect("discovered", "discarded", "discovered")["id"] == found["id"]
    other.expect("discovered")


def test_a_locator_finds_a_server_that_starts_later(world: World) -> None:
    server, client = world.lan.host(), world.lan.host()
    locator = f"leasehold://{world.lan.address(server)}"
    watcher = world.watch(client, "--locator", locator)
    process = world.serve(server)
    watcher.expect("discovered")
    process.kill()
    time.sleep(2 * TTL_S)
    watcher.expect("discovered")  # by locator only: it is never lost


def test_servers_of_one_cluster_are_one_registrar_until_the_last_has_gone(
    world: World, tmp_path: Path
) -> None:
    etcd = etcd_program("etcd")
    if etcd is None:
        pytest.skip("etcd is not installed")
    first, second, client, storage = (world.lan.host() for _ in range(4))
    url = f"http://{world.lan.address(storage)}:2379"
    addresses = ["--listen-client-urls", url, "--advertise-client-urls", url]
    directory = str(tmp_path / "etcd")
    words = [etcd, "--data-dir", directory, *addresses, "--log-level", "error"]
    world.lan.start(storage, words, stderr=subprocess.DEVNULL)
    engine = ("--engine", f"etcd://{world.lan.address(storage)}:2379")
    watcher = world.watch(client, "--group", "a")
    one = world.serve(first, *engine)
    watcher.expect("discovered")
    other = world.serve(second, *engine, groups="")
    late = world.watch(client, "--group", "a")
    late.expect("discovered")
    time.sleep(2 * TTL_S)  # both watchers receive announcements of both servers in this time
    one.terminate()
    assert one.wait(WITHIN_S) == 0
    time.sleep(2 * TTL_S)
    watcher.expect("discovered")
    late.expect("discovered")
    other.terminate()
    watcher.expect("discovered", "discarded")
    late.expect("discovered", "discarded")
