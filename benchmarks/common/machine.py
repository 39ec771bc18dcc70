"""What the figures were measured with."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


def machine_line() -> str:
    """What the figures were measured with: no name of a host, no path."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    python = f"{platform.python_implementation()} {platform.python_version()}"
    today = datetime.now(UTC).date().isoformat()
    return f"{python}, {os.cpu_count()} x {model}, {platform.system()}, {today}"


def on_memory(directory: Path) -> bool:
    """Whether a directory is on a file system that keeps nothing, where a sync costs nothing."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return False
    kinds = {}
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, point, kind, *_ = line.split()
        kinds[Path(point)] = kind
    resolved = directory.resolve()
    nearest = next((each for each in (resolved, *resolved.parents) if each in kinds), None)
    return nearest is not None and kinds[nearest] in MEMORY_FILE_SYSTEMS
