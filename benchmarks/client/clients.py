"""The clients that are measured, each where its packages are."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tools.client_environments import directory_of, is_ready

ASYNCIO, UVLOOP, SYNC = "ours, asyncio", "ours, uvloop", "ours, threads"
AETCD, ETCD3 = "aetcd", "etcd3, threads"

OURS: Final = (ASYNCIO, UVLOOP, SYNC)
OTHERS: Final = (AETCD, ETCD3)
BARE: Final = "no client"
CLIENTS: Final = (ASYNCIO, AETCD, UVLOOP, ETCD3, SYNC, BARE)
"""The order of measurement: it alternates between kinds."""

_PACKAGES: Final = {AETCD: "aetcd", ETCD3: "etcd3"}
_SYNC_MODULE: Final = "leasehold.sync"


@dataclass(frozen=True, slots=True)
class Absent:
    """A client that is not there, and why."""

    why: str


def interpreter_of(who: str) -> Path | Absent:
    """Find the Python that has a client: ours, or one that `make clients` has made."""
    package = _PACKAGES.get(who)
    if package is not None:
        if not is_ready(package):
            return Absent(f"{package} is not there, or too old: `make clients` installs it")
        return directory_of(package) / "bin" / "python"
    if who == SYNC and find_spec(_SYNC_MODULE) is None:
        return Absent(f"{_SYNC_MODULE} is not there")
    return Path(sys.executable)
