"""For all tests: signals have the actions that they have in a terminal; `gc.collect` is quick.

A process in the background of a shell without job control, as in continuous integration, inherits
ignored SIGINT and SIGQUIT, and one under `nohup` an ignored SIGHUP. Processes under test would
inherit that, and tests that send these signals would wait for ever.

Many tests collect garbage. Each collection took half a second, because it looked at all tests.
"""

import gc
import signal


def pytest_configure() -> None:
    """Restore the actions, here and so in every process that is started from here."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Leave the tests, which live until the end, out of later garbage collections."""
    gc.collect()
    gc.freeze()
