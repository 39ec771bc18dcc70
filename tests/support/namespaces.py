"""A small network of its own: hosts in network namespaces, on one bridge.

    with Lan() as lan:
        host = lan.host()           # with an address, lan.address(host)
        lan.start(host, ["leasehold", "serve", ...])

The bridge is in a namespace as well, so the network of the machine is not changed. Everything is
removed at the end of the block, and the processes are killed. It needs root on Linux, and `ip`.
"""

import contextlib
import itertools
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import pytest

_COUNT: Final = itertools.count(1)
NETWORK: Final = "10.213.7"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Lan:
    """Hosts that hear each other's multicasts."""

    def __init__(self) -> None:
        self._prefix = f"lh{os.getpid()}{secrets.token_hex(2)}x{next(_COUNT)}"
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.hub = self._namespace("hub")
            self._in(self.hub, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
            self._in(self.hub, "link", "set", "br0", "up")
        except BaseException:
            self.close()
            raise

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}{name}"
        _ip("netns", "add", full)
        self._names.append(full)
        _ip("-n", full, "link", "set", "lo", "up")
        return full

    def _in(self, namespace: str, *words: str) -> None:
        _ip("-n", namespace, *words)

    def host(self) -> str:
        """Add a host; return its name."""
        number = len(self._numbers) + 1
        name = self._namespace(f"h{number}")
        self._numbers[name] = number
        port = f"p{number}"
        self._in(self.hub, "link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
        self._in(self.hub, "link", "set", port, "master", "br0", "up")
        self._in(name, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        self._in(name, "link", "set", "eth0", "up")
        self._in(name, "route", "add", "default", "dev", "eth0")
        return name

    def address(self, host: str) -> str:
        """Return the address of a host."""
        return f"{NETWORK}.{self._numbers[host]}"

    def deafen(self, host: str) -> None:
        """Let no multicast reach a host."""
        port = f"p{self._numbers[host]}"
        self._in(self.hub, "link", "set", "dev", port, "type", "bridge_slave", "mcast_flood", "off")

    def cut(self, host: str) -> None:
        """Disconnect a host from all others."""
        self._in(self.hub, "link", "set", f"p{self._numbers[host]}", "nomaster")

    def join(self, host: str) -> None:
        """Connect it again."""
        self._in(self.hub, "link", "set", f"p{self._numbers[host]}", "master", "br0")

    def start(self, host: str, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a program on a host."""
        words = ["ip", "netns", "exec", host, *command]
        process = subprocess.Popen(words, **options)  # noqa: S603
        self._processes.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the programs, and remove the namespaces with their interfaces."""
        for process in self._processes:
            process.kill()  # `ip netns exec` has replaced itself by the program
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for name in reversed(self._names):
            with contextlib.suppress(OSError):
                _ip("netns", "delete", name)


def why_not() -> str:
    """Return why namespaces cannot be used here; empty if they can."""
    if shutil.which("ip") is None:
        return "network namespaces need the program `ip` (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"lh{os.getpid()}{secrets.token_hex(4)}"
    try:
        _ip("netns", "add", name)
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"
    try:
        _ip("-n", name, "link", "add", "br0", "type", "bridge")
    except OSError as error:
        return f"bridges cannot be made here: {error}"
    finally:
        _ip("netns", "delete", name)
    return ""


@contextlib.contextmanager
def lan_or_skip() -> Iterator[Lan]:
    """Make a network, or skip the test with the reason."""
    if reason := why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(Lan())
