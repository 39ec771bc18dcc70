"""The event loop of one simulated host: asyncio's own, minus the selector.

Theory of operation. `BaseEventLoop` provides tasks, futures and `call_soon`; this subclass replaces
its timers and its `_run_once`. The simulation calls `turn`, which is one iteration of a loop:
timers that are due and messages that arrived become ready, then everything that was ready at that
point runs. asyncio's guarantees are kept (`call_soon` is first in, first out; timers run in order
of their time). Everything else is drawn from the seed: the order of timers for the same instant,
and whether messages come before timers, as with asyncio's selectors, or a turn after them, as with
uvloop.

After each callback the loop asks its host whether it may continue: if that callback has stalled,
stopped or crashed the host, the rest is left for a later turn, or never runs.

The loop of a crashed host is *dead*: it drops everything that is scheduled on it. Its suspended
coroutines cannot be dropped, since Python runs their `finally` blocks when it frees them, so they
are kept as they are until the simulation ends, and then closed without effect.
"""

import asyncio
import contextlib
import ctypes
import heapq
import inspect
import sys
import threading
from asyncio.events import _get_running_loop, _set_running_loop
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVarTuple

from leasehold.testing.simulation_errors import NotSimulated, is_unnoticed, name_of

if TYPE_CHECKING:
    from leasehold.testing.host import Host

Ts = TypeVarTuple("Ts")

TIMERS_FIRST = 0.5  # probability that messages wait for the turn after due timers
MAX_CLOSE_ATTEMPTS = 100  # of one coroutine that awaits again while it is being closed
MIN_CANCELLED_TIMERS = 100  # below this it is not worth rebuilding the heap


def _refused(name: str) -> Any:
    def refuse(_self: "HostLoop", *_args: object, **_kwargs: object) -> NoReturn:
        raise NotSimulated(f"loop.{name}() is not simulated; use the simulation's network or tasks")

    return refuse


class HostLoop(asyncio.BaseEventLoop):
    """Runs when the simulation calls it, in its host's time."""

    _ready: deque[asyncio.Handle]
    _thread_id: int | None

    if TYPE_CHECKING:  # parts of BaseEventLoop that its stub leaves out

        def _check_closed(self) -> None: ...
        def _asyncgen_firstiter_hook(self, agen: Any) -> None: ...

    def __init__(self, host: "Host", random: Random) -> None:
        super().__init__()
        self._host = host
        self._random = random
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._timers_cancelled = 0
        self._arrived: deque[Callable[[], None]] = deque()
        self._messages_wait = False
        # Insertion order makes closing deterministic (asyncio's own set is ordered by address),
        # and strong references keep the garbage collector from deciding what happens.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._dead = False
        self._home_thread = threading.get_ident()

    @property
    def host(self) -> "Host":
        """The host of this loop."""
        return self._host

    # For the simulation.

    def deliver(self, callback: Callable[[], None]) -> None:
        """Deliver a message: `callback` runs in a later turn."""
        self._arrived.append(callback)

    @property
    def arrived(self) -> int:
        """How many messages wait for the next turn."""
        return len(self._arrived)

    def has_work(self) -> bool:
        """Whether a turn would run something without waiting for a timer."""
        return bool(self._ready or self._arrived)

    def next_timer(self) -> float | None:
        """Reading of the clock at which the earliest timer is due."""
        while self._timers and self._timers[0][3].cancelled():
            heapq.heappop(self._timers)
            self._timers_cancelled -= 1
        return self._timers[0][0] if self._timers else None

    def turn(self, tally: Counter[str] | None = None) -> int:
        """Run one iteration; count callbacks by name in `tally`. Return how many ran."""
        with self.entered():
            self._poll()
            ran = 0
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if handle.cancelled():
                    continue
                if tally is not None:
                    tally[_name_of_handle(handle)] += 1
                handle._run()  # noqa: SLF001 - what BaseEventLoop._run_once does
                _clear_callback(handle)
                ran += 1
                if self._dead or self._host.halted:
                    break
        return ran

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the running loop."""
        outer, hooks = _get_running_loop(), sys.get_asyncgen_hooks()
        thread_id, self._thread_id = self._thread_id, threading.get_ident()
        sys.set_asyncgen_hooks(
            firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook
        )
        _set_running_loop(self)
        try:
            yield
        finally:
            _set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)
            self._thread_id = thread_id

    def live_tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks that have not ended, oldest first."""
        return [task for task in self._tasks if not task.done()]

    def is_quiet(self) -> bool:
        """Whether all tasks have ended and nothing is about to run."""
        return not self._tasks and not self._ready

    def kill(self) -> None:
        """Handle a crash of the host: drop all that was to run, and run nothing more."""
        self._dead = True
        self._ready.clear()
        self._timers.clear()
        self._arrived.clear()

    def close_with_tasks(self) -> None:
        """Close the remaining coroutines without effect, then the loop."""
        self.kill()
        with self.entered():
            while tasks := self.live_tasks():
                for task in tasks:
                    del self._tasks[task]
                    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
                    _close_coroutine(task.get_coro())
        self._tasks.clear()
        self.close()

    # Called by asyncio.

    def time(self) -> float:
        """The host's monotonic clock."""
        return self._host.clock.monotonic()

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a timer; the order of timers for the same instant is drawn from the seed."""
        if when is None:
            raise TypeError("when cannot be None")
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if self._dead:
            timer.cancel()
            return timer
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._random.random(), self._timers_made, timer))
        return timer

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in the next turn, after all that was scheduled before it."""
        handle = super().call_soon(callback, *args, context=context)
        if self._dead:
            self._ready.clear()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Like `call_soon`; other threads are refused, since nothing could replay them."""
        if threading.get_ident() != self._home_thread:
            raise NotSimulated("call_soon_threadsafe() from another thread is not simulated")
        return self.call_soon(callback, *args, context=context)

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Create a task and keep it until it has ended."""
        task = super().create_task(coro, **kwargs)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass an unhandled error to the simulation, which fails with it."""
        if not self._dead:
            self._host.world.failed(self._host, context)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        # The exception may still be retrieved, so it is not an error yet.
        if is_unnoticed(task):
            self._host.world.task_failed(self._host, task)

    def _poll(self) -> None:
        """Make due timers and arrived messages ready."""
        timers = self._due_timers()
        # Never twice in a row: messages may come after timers, but must not starve.
        self._messages_wait = bool(
            timers
            and self._arrived
            and not self._messages_wait
            and self._random.random() < TIMERS_FIRST
        )
        if not self._messages_wait:
            self._ready.extend(asyncio.Handle(arrive, (), self) for arrive in self._arrived)
            self._arrived.clear()
        self._ready.extend(timers)

    def _due_timers(self) -> list[asyncio.Handle]:
        now = self.time()
        due: list[asyncio.Handle] = []
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[3]
            if timer.cancelled():
                self._timers_cancelled -= 1
            else:
                due.append(timer)
        return due

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > max(MIN_CANCELLED_TIMERS, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[3].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if not self._dead:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    # Calls that would leave the simulation.

    run_forever = _refused("run_forever")
    run_until_complete = _refused("run_until_complete")
    run_in_executor = _refused("run_in_executor")
    getaddrinfo = _refused("getaddrinfo")
    getnameinfo = _refused("getnameinfo")
    create_connection = _refused("create_connection")
    create_server = _refused("create_server")
    create_datagram_endpoint = _refused("create_datagram_endpoint")
    create_unix_connection = _refused("create_unix_connection")
    create_unix_server = _refused("create_unix_server")
    connect_accepted_socket = _refused("connect_accepted_socket")
    connect_read_pipe = _refused("connect_read_pipe")
    connect_write_pipe = _refused("connect_write_pipe")
    subprocess_exec = _refused("subprocess_exec")
    subprocess_shell = _refused("subprocess_shell")
    sock_recv = _refused("sock_recv")
    sock_recv_into = _refused("sock_recv_into")
    sock_sendall = _refused("sock_sendall")
    sock_connect = _refused("sock_connect")
    sock_accept = _refused("sock_accept")
    add_reader = _refused("add_reader")
    add_writer = _refused("add_writer")
    add_signal_handler = _refused("add_signal_handler")


def _name_of_handle(handle: asyncio.Handle) -> str:
    """Return the name of a callback, or of its coroutine if it is a step of a task."""
    callback: Any = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    return f"task {name_of(owner)}" if isinstance(owner, asyncio.Task) else name_of(callback)


def _clear_callback(handle: asyncio.Handle) -> None:
    """Clear a handle that has run.

    The traceback of an exception refers to the frames below it, thus to the handle and, by its
    callback, to the failed task itself. Without that cycle a task without references is freed, and
    reported, immediately instead of at the next garbage collection.
    """
    handle._callback = None  # type: ignore[attr-defined]  # noqa: SLF001
    handle._args = ()  # noqa: SLF001


def _close_coroutine(coro: object) -> None:
    """Close a coroutine that may await or raise while it is being closed."""
    assert isinstance(coro, Coroutine)
    for _ in range(MAX_CLOSE_ATTEMPTS):
        with contextlib.suppress(BaseException):
            coro.close()
        if not inspect.iscoroutine(coro) or inspect.getcoroutinestate(coro) == "CORO_CLOSED":
            return
    # It suppresses every exception. Freeing it would throw one more into it, and without a loop it
    # may then run for ever, at the latest when the interpreter exits: so it is never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))
