"""How often the servers sync, counted from outside: strace sees every call, and slows them down."""

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.etcd.journals import count_batches
from benchmarks.etcd.load import put_load_on
from benchmarks.etcd.servers import ETCD, get, running

HOW_TO_GET = "strace is not there (Debian: apt-get install strace)"
_SYNC = re.compile(rb"\bf(?:data)?sync\(")
_WAL_SYNCS = re.compile(r"^etcd_disk_wal_fsync_duration_seconds_count (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Syncs:
    """The syncs of one server under one load of Puts."""

    server: str
    case: str
    puts: int
    batches: int
    syncs: int


def is_there() -> bool:
    """Whether strace can be run."""
    return shutil.which("strace") is not None


def measure_syncs(name: str, case: str, seconds: float, base: Path) -> Syncs:
    """Count the syncs between the first and the last of some Puts, and the batches they were in.

    A batch is a row in our journal; with etcd it is a sync of its write-ahead log, by its count.
    """
    with tempfile.TemporaryDirectory(dir=base, prefix="bench-etcd-") as directory:
        trace = Path(directory) / "trace"
        strace = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
        with running(name, Path(directory), before=strace) as server:
            before = len(_SYNC.findall(trace.read_bytes()))
            batches = _wal_syncs(server.port) if name == ETCD else 0
            result = put_load_on(server, case, seconds)
            syncs = len(_SYNC.findall(trace.read_bytes())) - before
            if name == ETCD:
                batches = _wal_syncs(server.port) - batches
        if name != ETCD:
            batches = count_batches(server.data)
    return Syncs(name, case, result.acknowledged, batches, syncs)


def _wal_syncs(port: int) -> int:
    found = _WAL_SYNCS.search(get(port, "/metrics"))
    if found is None:
        raise ValueError("etcd's metrics do not say how often its log was synced")
    return int(float(found[1]))
