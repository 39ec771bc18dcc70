"""A remote engine in a forked child: refused by name, and the parent's goes on."""

import subprocess
import sys

from tests.engines.conftest import Start

SCRIPT = """
import asyncio, os, sys, warnings
import leasehold
from tests.engines.conftest import remote_engine

warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads


async def child(engine, watch):
    calls = [engine.put(b"a", b""), engine.range(b"a"), engine.grant(10), engine.renew(1)]
    for call in [*calls, anext(watch), watch.ready()]:
        try:
            await call
        except leasehold.Forked as error:
            assert str(os.getppid()) in str(error), error
        else:
            raise AssertionError("it works in a child")
    await engine.close()  # does nothing, and harms nobody
    os._exit(0)


async def main():
    engine = await remote_engine([sys.argv[1]])
    lease = (await engine.grant(60)).id
    async with engine.watch(b"forked") as watch:
        pid = os.fork()
        if not pid:
            await child(engine, watch)  # whatever waited there would wait for ever
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        await engine.renew(lease)
        revision = (await engine.put(b"forked", b"")).revision
        assert (await anext(watch)).revision == revision
    await engine.revoke(lease)
    await engine.close()
    print("as before")


asyncio.run(main())
"""


def test_a_child_is_told_and_the_parent_goes_on(start_server: Start) -> None:
    [endpoint] = start_server("leasehold")
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-c", SCRIPT, endpoint],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("as before\n", 0), done.stderr
