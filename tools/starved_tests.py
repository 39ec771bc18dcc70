"""Run tests on one core beside a load that takes it, to find those that depend on its speed.

    python tools/starved_tests.py [--times 5] [--core 0] [--load 2] [--workers 0] TESTS...

`TESTS` are arguments of pytest, such as `tests/faults` or `@FILE` with a list that the plugin
`tests.support.real_time` has written. With `--workers N` N tests run at a time, all on that core: a
run takes less time, and the tests are a load for each other. Linux only: the tool pins itself and
every process that it starts.
"""

import argparse
import os
import subprocess
import sys
from typing import Final

BUSY: Final = "while True: pass"


def main() -> int:
    """Run them several times; return 1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=5, help="how often to run them (default: 5)")
    parser.add_argument("--core", type=int, default=0, help="the core to run on (default: 0)")
    parser.add_argument("--load", type=int, default=2, help="busy processes (default: 2)")
    parser.add_argument("--workers", type=int, default=0, help="tests at a time (default: one)")
    arguments, tests = parser.parse_known_args()
    parallel = ["-n", str(arguments.workers), "--dist", "worksteal"]
    os.sched_setaffinity(0, {arguments.core})
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(arguments.load)]  # noqa: S603  a constant
    try:
        codes = [
            subprocess.run(  # noqa: S603  arguments of the caller
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *parallel, *tests],
                check=False,
            ).returncode
            for _ in range(arguments.times)
        ]
    finally:
        for each in load:
            each.kill()
            each.wait()
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
