"""The loop's thread of this process: started by the first client, and ended with the interpreter.

A forked child has none; the next `connect` starts one for the child.
"""

import atexit
import os
import sys
import threading
from collections.abc import Callable

from leasehold.sync.loop_thread import LoopThread


class _Process:
    """The thread of this process, if it was started."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a handler of a signal may come at any time
        self._thread: LoopThread | None = None
        self._of_parents: list[LoopThread] = []
        """Kept for good: what their loops have is shared with the parent, and must not end here."""

    def thread(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread()
                _call_at_exit(self._thread.close)
            return self._thread

    def forked(self) -> None:
        self._lock = threading.RLock()  # another thread may have had it
        if self._thread is not None:
            self._thread.abandon()
            self._of_parents.append(self._thread)
            self._thread = None


def _call_at_exit(close: Callable[[], None]) -> None:
    atexit.register(close)
    process, util = sys.modules.get("multiprocessing.process"), "multiprocessing.util"
    if process is not None and process.parent_process() is not None and util in sys.modules:
        # A child that `multiprocessing` has forked ends without what was registered with atexit.
        sys.modules[util].Finalize(None, close, exitpriority=0)


_process = _Process()
loop_thread = _process.thread
"""Give the thread of this process; the first call starts it."""

os.register_at_fork(after_in_child=_process.forked)
