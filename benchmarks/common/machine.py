"""What the figures were measured with."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


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
