"""The part of `Join` that is not generated: its discovery, the callback for its id, and its end."""

from collections.abc import Callable
from functools import partial

from leasehold.basics.callbacks import check_plain_callback
from leasehold.discovery import join as on_loop
from leasehold.discovery.discovery import Discovery as AsyncDiscovery
from leasehold.sync.client_base import LoopObject
from leasehold.sync.generated.discovery import Discovery
from leasehold.sync.loop_thread import loop_thread


class JoinBase(LoopObject[on_loop.Join]):
    """A join on the loop, closed at interpreter exit if not before."""

    _given: Discovery | None

    def __init__(self, make: Callable[[], on_loop.Join]) -> None:
        thread = loop_thread()

        def make_and_record() -> on_loop.Join:
            made = make()
            thread.open_objects.add(made)
            return made

        super().__init__(make_and_record)
        own = Discovery.__new__(Discovery).adopt(thread, self._on_loop.discovery)
        self._discovery = self._given or own

    def _use(self, discovery: Discovery | None) -> AsyncDiscovery | None:
        """Return the discovery on the loop for the one that the program has given."""
        if not isinstance(discovery, Discovery | None):
            raise TypeError(f"discovery must be a leasehold.sync.Discovery, not {discovery!r}")
        self._given = discovery
        return None if discovery is None else discovery.on_loop

    def _in_thread(self, on_id: Callable[[str], object] | None) -> Callable[[str], object] | None:
        """Return a callback for the loop: it has the one given called in another thread."""
        check_plain_callback(on_id, "on_id")
        if on_id is None:
            return None
        return lambda item_id: self._thread.callbacks.submit(
            partial(self._notify, on_id, item_id, self)
        )

    @property
    def discovery(self) -> Discovery:
        """The discovery that finds its registrars, such as to change their groups."""
        return self._discovery

    async def _end(self, join: on_loop.Join) -> None:
        try:
            await super()._end(join)
        finally:
            self._thread.open_objects.discard(join)

    def _close(self) -> None:
        super()._close()
        if self._given is None:
            self._discovery.close()
