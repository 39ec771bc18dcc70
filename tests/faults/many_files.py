"""A process that holds many files open, until it is killed.

    python -m tests.faults.many_files ENDPOINT COUNT DIRECTORY BYTES

Lines on standard output, each written immediately:

    open COUNT              so many files are open, with flushed bytes
    renewed LEASE           the engine was called to renew a lease
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import leasehold

CONCURRENT_OPENS: Final = 32
PER_DIRECTORY: Final = 1_000


def path_of(number: int, directory: str = "many") -> str:
    """Return the path of a file."""
    return f"{directory}/{number // PER_DIRECTORY}/{number}"


def content_of(number: int, size_bytes: int = 0) -> bytes:
    """Return the content of a file: one line, which is repeated up to a size."""
    line = b"the line of file %d\n" % number
    return line * max(1, size_bytes // len(line))


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def main(endpoint: str, count: int, directory: str, size_bytes: int) -> None:
    """Open the files, and wait."""
    async with leasehold.connect(endpoint, name="many") as client:
        renew = client.engine.renew

        async def renewed(lease: int) -> float:
            _say("renewed", lease)
            return await renew(lease)

        client.engine.renew = renewed  # type: ignore[method-assign]
        numbers = iter(range(count))
        writers: list[leasehold.FileWriter] = []  # one that is forgotten gives its file up

        async def open_some() -> None:
            for number in numbers:
                file = await client.files.create(path_of(number, directory))
                await file.write(content_of(number, size_bytes))
                await file.flush()
                writers.append(file)

        await asyncio.gather(*(open_some() for _ in range(CONCURRENT_OPENS)))
        _say("open", count)
        await asyncio.get_running_loop().create_future()


@contextmanager
def many_files(
    endpoint: str, count: int, directory: str = "many", size_bytes: int = 0
) -> Iterator["subprocess.Popen[str]"]:
    """Run the process."""
    program = (sys.executable, "-W", "error", "-m", "tests.faults.many_files")
    arguments = (endpoint, str(count), directory, str(size_bytes))
    with subprocess.Popen(  # noqa: S603  our own program
        [*program, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
