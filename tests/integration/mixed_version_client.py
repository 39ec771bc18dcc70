"""A client in a process of its own, of whichever version is on its path: obeys lines of JSON.

    python mixed_version_client.py ENDPOINT NAME

Each line is a command, a list of its name and its arguments; the answer is one line of JSON. It
uses only what both versions have.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import leasehold
import leasehold.sync

PAUSE_S = 0.002
TTL_S = 5.0


class Actor:
    """The commands. Guards are kept by the name of what is held."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name
        self._guards: dict[str, Any] = {}

    def acquire(self, kind: str, name: str, timeout_s: float) -> list[int]:
        """Acquire something, and keep it; return the parts of its token."""
        guard = self._acquiring(kind, name)(timeout_s)
        self._guards[name] = guard
        return list(guard.token)

    def _acquiring(self, kind: str, name: str) -> Callable[[float], Any]:
        client = self._client
        if kind == "lock":
            return lambda timeout_s: client.lock(name).acquire(timeout=timeout_s)
        if kind == "read":
            return lambda timeout_s: client.rwlock(name).read(timeout_s)
        if kind == "write":
            return lambda timeout_s: client.rwlock(name).write(timeout_s)
        if kind.startswith("semaphore"):
            limit = int(kind.removeprefix("semaphore"))
            return lambda timeout_s: client.semaphore(name, limit).acquire(timeout_s)
        assert kind == "election"
        return lambda timeout_s: client.election(name).campaign(self._name, timeout_s)

    def release(self, name: str) -> None:
        """Release it."""
        self._guards.pop(name).release()

    def check(self, name: str) -> bool:
        """Return whether it is held."""
        return bool(self._guards[name].is_held)

    def count(self, name: str) -> int:
        """Return how often a lock was acquired."""
        counted = self._client.count_acquisitions(name)
        return int(getattr(counted, "counts", counted)[name])

    def leader(self, name: str) -> str | None:
        """Return the proclaimed value of the leader."""
        leader = self._client.election(name).leader()
        return None if leader is None else leader.text

    def wait_at(self, name: str, parties: int, timeout_s: float) -> int:
        """Wait at a barrier; return the token."""
        return int(self._client.barrier(name, parties).wait(timeout_s))

    def grant(self, subject: str, resource: str, right: str) -> int:
        """Grant a permit; return its lease."""
        return int(self._client.permits.grant(subject, resource, {right}, ttl=60).lease)

    def may(self, subject: str, resource: str, right: str) -> bool:
        """Check a permit at the server."""
        return bool(self._client.permits.check(subject, resource, right, cache=False))

    def revoke(self, subject: str, resource: str) -> bool:
        """Revoke a permit."""
        return bool(self._client.permits.revoke(subject, resource))

    def add_up(self, kind: str, name: str, file: str, times: int) -> None:
        """Under the lock: read a number, pause, and write the next one."""
        number = Path(file)
        for _ in range(times):
            guard = self._acquiring(kind, name)(30.0)
            before = int(number.read_text())
            time.sleep(PAUSE_S)
            number.write_text(str(before + 1))
            guard.release()

    def where(self) -> str:
        """Return where its version is."""
        return str(Path(leasehold.__file__).parent)


def main() -> None:
    """Obey until the end of standard input."""
    endpoint, name = sys.argv[1:]
    with leasehold.sync.connect(endpoint, name=name, session_ttl=TTL_S) as client:
        actor = Actor(client, name)
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            try:
                answer = {"result": getattr(actor, command)(*arguments)}
            except (leasehold.LeaseholdError, TimeoutError, ValueError) as error:
                answer = {"error": type(error).__name__, "text": str(error)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
