"""What is to be done about the keys of callers who have gone: in slices, for many go at once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from leasehold.engine.runtime import Runtime
from leasehold.engine.slices import Slicer
from leasehold.errors import LeaseholdError


class Chores:
    """Removes keys, and leases, as soon as no operation is under way in steps."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._chores: OrderedDict[bytes, list[Callable[[], None]]] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._chores)

    def do_soon(self, key: bytes, chore: Callable[[], None]) -> None:
        """Have a key or its lease removed soon, and before anybody claims the key again."""
        try:
            self._runtime.check()
        except LeaseholdError:
            return  # everything is over: what is on disk stays as it is
        self._chores.setdefault(key, []).append(chore)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def do_now(self, key: bytes) -> None:
        """Do what is to be done about a key; not while an operation is under way in steps."""
        for chore in self._chores.pop(key, ()):
            chore()

    async def _work(self) -> None:
        slicer = Slicer(self._store.leases.monotonic)
        try:
            while self._chores:
                await self._runtime.enter()
                if self._chores:  # somebody may have been faster
                    self.do_now(next(iter(self._chores)))
                await slicer.pause()
        except LeaseholdError:
            self._chores.clear()  # everything is over
        finally:
            self._worker = None  # in the same step as its last look: nothing is missed
