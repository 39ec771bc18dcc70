"""A program that has a data directory open, and puts one key after the other. Run by fault tests.

    python backup_owner.py DIRECTORY [--slow]

Each put that was acknowledged is a line with its revision. Slow means that backups are copied a
page at a time, with a pause after each, so that they can be met in the middle: a copy takes some
ten seconds, which is longer than a busy machine keeps a test waiting.
"""

import asyncio
import sys
import time
from pathlib import Path
from unittest import mock

from leasehold.engine.embedded import open_engine
from leasehold.store import backup

LARGE_KEYS = 16
LARGE_BYTES = 500_000
PAUSE_S = 0.005

_go_on = backup.Copy.go_on


def _go_on_slowly(copy: backup.Copy) -> bool:
    time.sleep(PAUSE_S)
    return _go_on(copy)


async def main(directory: Path) -> None:
    """Put until killed."""
    async with open_engine(directory) as engine:
        if not (await engine.range(b"large", b"largf")).pairs:
            for number in range(LARGE_KEYS):
                await engine.put(b"large %d" % number, bytes(LARGE_BYTES))
        while True:
            revision = (await engine.put(b"small", b"x" * 100)).revision
            sys.stdout.write(f"{revision}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if "--slow" in sys.argv[2:]:
        mock.patch.multiple(backup, SLICE_S=0.0, PAGES_PER_STEP=1).start()
        mock.patch.object(backup.Copy, "go_on", _go_on_slowly).start()
    asyncio.run(main(Path(sys.argv[1])))
