"""What other processes use, and how much of everything this one may."""

import resource
import time
from pathlib import Path
from time import monotonic, sleep
from typing import Final

SETTLED_BYTES: Final = 64 * 1024
LOOK_S: Final = 0.1
SETTLE_S: Final = 5.0


def cpu_s_of(pid: int) -> float:
    """User and system time of a process, all of its threads.

    Linux has a clock for each process that counts just this, to the nanosecond, and makes the
    clock's number out of the process's. `/proc` has only hundredths of a second.
    """
    return time.clock_gettime(~pid << 3 | 2)


def resident_bytes_of(pid: int) -> int:
    """What a process occupies in memory."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"cannot read the resident memory of process {pid}")


def settled_bytes(pid: int) -> int:
    """What a process occupies in memory, as soon as that stays the same."""
    deadline = monotonic() + SETTLE_S
    last = resident_bytes_of(pid)
    while monotonic() < deadline:
        sleep(LOOK_S)
        now = resident_bytes_of(pid)
        if abs(now - last) < SETTLED_BYTES:
            return now
        last = now
    return last


def raise_file_limit() -> int:
    """Raise the limit on open files to the maximum, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
