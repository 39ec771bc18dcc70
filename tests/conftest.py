"""For all tests: signals as in a terminal, a quick `gc.collect`, and the profile of Hypothesis.

A process in the background of a shell without job control, as in continuous integration, inherits
ignored SIGINT and SIGQUIT, and one under `nohup` an ignored SIGHUP. Processes under test would
inherit that, and tests that send these signals would wait for ever.

Many tests collect garbage. Each collection took half a second, because it looked at all tests.

Hypothesis tries the same examples in each run, and as long as they take: its deadline of 200 ms for
an example would depend on the machine. `HYPOTHESIS_PROFILE=deep` searches longer, at random.
"""

import gc
import os
import signal

from hypothesis import HealthCheck, Phase, settings

from tests.property.support import DEEP, PROFILE

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(DEEP, settings.get_profile("repeatable"), derandomize=False)
settings.load_profile(os.environ.get(PROFILE, "repeatable"))


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
