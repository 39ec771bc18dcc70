"""Signals wake up the event loop of a command, whenever they come."""

import asyncio
import signal
import threading

from leasehold.cli.signals import wake_on_signals


def wakeup_fd() -> int:
    """The file that the system's handler of signals writes to; -1 for none."""
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number)
    return number


def test_a_signal_that_comes_before_the_loop_waits_wakes_it_up() -> None:
    async def main() -> int:
        wake_on_signals(asyncio.get_running_loop())
        return wakeup_fd()

    before = signal.getsignal(signal.SIGWINCH), wakeup_fd()
    assert asyncio.run(main()) >= 0
    assert (signal.getsignal(signal.SIGWINCH), wakeup_fd()) == before


def test_a_loop_in_another_thread_has_no_signals() -> None:
    async def main() -> None:
        wake_on_signals(asyncio.get_running_loop())
        ended.append(True)

    ended: list[bool] = []
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()
    assert ended == [True]
