"""An engine in a forked child: refused, and the parent's data are none the worse for it."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, gc, os, sys, warnings
import leasehold

warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads: they are the point


async def use(engine):
    for call in (engine.put(b"a", b"child"), engine.range(b"a"), engine.grant(10), engine.renew(1)):
        try:
            await call
        except leasehold.Forked as error:
            assert str(os.getppid()) in str(error), error
        else:
            raise AssertionError("it works in a child")
    await engine.close()  # does nothing, and harms nobody


async def child_main(engines):
    await use(engines.pop())
    gc.collect()
    # As `multiprocessing` does: closing the loop would take the parent's files from its epoll.
    os._exit(0)


async def parent(path, how):
    engine = await leasehold.open_engine(path)
    for number in range(50):
        await engine.put(b"a", b"%d" % number)
    child = os.fork()
    if not child:
        engines = [engine]
        del engine
        await child_main(engines)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    await engine.put(b"a", b"after")
    assert (await engine.range(b"a")).revision == 52
    if how == "killed":
        os.kill(os.getpid(), 9)
    await engine.close()


asyncio.run(parent(sys.argv[1], sys.argv[2]))
"""

AFTERWARDS = """
import asyncio, sys
import leasehold


async def main(path):
    async with leasehold.open_engine(path) as engine:
        found = await engine.range(b"a")
        print(found.revision, found.pairs[0].value)


asyncio.run(main(sys.argv[1]))
"""

HELD_BY_A_CHILD = """
import asyncio, os, sys, time
import leasehold


async def main(path):
    engine = await leasehold.open_engine(path)
    await engine.put(b"a", b"x")
    child = os.fork()
    if not child:
        sys.stdin.read()  # outlives its parent
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), 9)


asyncio.run(main(sys.argv[1]))
"""


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    done = _run(SCRIPT, str(tmp_path / "data"), "closed")
    assert done.returncode == 0, done.stderr
    assert _run(AFTERWARDS, str(tmp_path / "data")).stdout.split() == ["52", "b'after'"]


def test_the_end_of_a_child_harms_nothing_that_its_parent_has_yet_to_lose(tmp_path: Path) -> None:
    done = _run(SCRIPT, str(tmp_path / "data"), "killed")
    assert done.returncode == -9, done.stderr
    assert _run(AFTERWARDS, str(tmp_path / "data")).stdout.split() == ["52", "b'after'"]


def test_a_child_does_not_keep_the_directory_of_a_dead_parent(tmp_path: Path) -> None:
    with subprocess.Popen(  # noqa: S603  our own interpreter
        [sys.executable, "-W", "ignore", "-c", HELD_BY_A_CHILD, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.wait(60) == -9
        assert _run(AFTERWARDS, str(tmp_path / "data")).stdout.split() == ["2", "b'x'"]
