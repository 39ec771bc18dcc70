"""A program that has a data directory open, and puts one key after the other. Run by fault tests.

    python backup_owner.py DIRECTORY [--slow]

Each put that was acknowledged is a line with its revision. Slow means that backups are copied a
page at a time, so that they can be met in the middle.
"""

import asyncio
import sys
from pathlib import Path
from unittest import mock

from leasehold.engine.embedded import open_engine
from leasehold.store import backup

LARGE_KEYS = 16
LARGE_BYTES = 500_000


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
        mock.patch.multiple(backup, SLICE_S=0.0, PAGES_AT_ONCE=1).start()
    asyncio.run(main(Path(sys.argv[1])))
