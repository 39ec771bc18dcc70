"""What the operating system says of this process, as Prometheus' own clients name it."""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

from leasehold.server.metrics.text import Exposition

_STARTED_AT = time.time()


def show_process(out: Exposition) -> None:
    """Add what is known of this process; on systems without `/proc` that is less."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = used.ru_utime + used.ru_stime
    out.counter("process_cpu_seconds_total", "Processor time spent, in seconds.", spent_s)
    out.gauge("process_start_time_seconds", "When the process began, since 1970.", _STARTED_AT)
    open_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    out.gauge("process_max_fds", "File descriptors that it may open.", open_max)
    with suppress(OSError, ValueError):
        open_now = len(list(Path("/proc/self/fd").iterdir()))
        out.gauge("process_open_fds", "File descriptors that it has open.", open_now)
        sizes = Path("/proc/self/statm").read_text(encoding="ascii").split()
        virtual, resident = (int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in sizes[:2])
        out.gauge("process_virtual_memory_bytes", "Address space in use.", virtual)
        out.gauge("process_resident_memory_bytes", "Memory in use.", resident)
