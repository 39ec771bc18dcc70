"""For all tests: signals do what they do in a terminal.

Whatever runs in the background of a shell without job control, as continuous integration may, has
SIGINT and SIGQUIT ignored, and hands that on: no Ctrl-C would ever reach a process under test.
"""

import signal


def pytest_configure() -> None:
    """Undo it, here and so in whatever is started from here."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
