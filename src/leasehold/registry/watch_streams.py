"""Streams of `leasehold.v1.Registry/Watch`: the items that match a template, and their changes.

A stream begins with all items that match, in one or more messages, and continues with the changes
after that, in order. Messages are sent as the client reads them. A client that reads too slowly for
the changes is refused the rest: its stream ends with an error, and it begins another one.
"""

import asyncio
from collections import deque
from itertools import islice
from typing import Final

from leasehold.errors import LeaseholdError, Status, TooBusy
from leasehold.grpc.error_details import REFUSED
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import ServerStream, StreamHandler, Subscription
from leasehold.registry.index import TemplateIndex
from leasehold.registry.item_feed import IndexChange
from leasehold.registry.messages import encoded_item, template_of
from leasehold.registry.service import RegistryService
from leasehold.registry.state import ItemVersion, Template, transition
from leasehold.wire import registry_pb2 as pb

MAX_WATCHES: Final = 10_000
"""Streams of one server."""

MAX_CHANGES: Final = 10_000
"""Changes that wait to be sent on one stream."""

MAX_CHANGE_BYTES: Final = 16 * 1024 * 1024
"""The size of these changes."""

MESSAGE_ITEMS: Final = 500
MESSAGE_BYTES: Final = 256 * 1024
"""Items or changes in one message, unless a single one is larger."""


def event_of(change: IndexChange, template: Template, *, passing: bool) -> pb.ItemEvent | None:
    """Return the event that a change is for a template; None if it is none.

    With `passing` an item that is not for use does not match.
    """
    before, after = change.before, change.after
    if passing:
        before = before if before is not None and before.item.is_passing else None
        after = after if after is not None and after.item.is_passing else None
    kind = transition(template, before, after)
    if kind is None:
        return None
    return pb.ItemEvent(
        transition=kind.name, id=change.id, item=change.encoded, revision=change.revision
    )


class ItemWatches:
    """The streams of one server."""

    def __init__(self, service: RegistryService) -> None:
        self.service = service
        self.count = 0
        """The number of streams."""
        self.turn = asyncio.Lock()
        """Held by a stream that searches its first items: one at a time."""
        self._streams: TemplateIndex[ItemWatchStream] = TemplateIndex()
        service.feed.listeners.append(self._changed)

    def method(self) -> Subscription:
        """The method of the service."""
        return Subscription(self._open, waits_for_room=True, reads_context=False)

    def _open(self, stream: ServerStream) -> StreamHandler:
        return ItemWatchStream(self, stream)

    def _changed(self, change: IndexChange) -> None:
        for stream in self._streams.concerned(change.before, change.after):
            stream.changed(change)

    def join(self, template: Template, stream: "ItemWatchStream") -> None:
        """Report changes to a stream from now on."""
        self._streams.add(template, stream)

    def leave(self, template: Template, stream: "ItemWatchStream") -> None:
        """Report nothing more to a stream."""
        self._streams.remove(template, stream)


class ItemWatchStream:
    """One stream."""

    def __init__(self, watches: ItemWatches, stream: ServerStream) -> None:
        self._watches = watches
        self._service = watches.service
        self._stream = stream
        self._request: pb.WatchItemsRequest | None = None
        self._template = Template()
        self._beginning: asyncio.Task[None] | None = None
        self._is_joined = False
        self._items: list[ItemVersion] = []
        """The first items that are still to be sent, the next one last."""
        self._is_found = False
        """Whether the first items were found. Nothing is sent before."""
        self._has_items = False
        """Whether the first items are still to be sent."""
        self._changes: deque[pb.ItemEvent] = deque()
        self._change_bytes = 0
        self._revision = 0
        self._is_sending = False
        """Whether messages will be sent in the next turn of the event loop."""
        self._is_gone = False

    # Called by the stream.

    def message_received(self, message: bytes) -> None:
        """Handle the only request."""
        if self._request is not None:
            raise RpcError(
                Status.INTERNAL,
                "server-streaming calls have one request, got two",
            )
        request = parse(pb.WatchItemsRequest.FromString, message)
        try:
            if not request.HasField("template"):
                raise ValueError("template must be given; an empty one matches everything")
            self._template = template_of(request.template)
        except ValueError as error:
            raise RpcError(Status.INVALID_ARGUMENT, str(error), detail=REFUSED) from None
        if self._watches.count >= MAX_WATCHES:
            raise TooBusy(f"this server has {MAX_WATCHES:,} watches of items already, the maximum")
        self._request = request
        self._watches.count += 1
        self._beginning = asyncio.get_running_loop().create_task(self._begin())

    def ended(self) -> None:
        """Do nothing: the client only has its request to send."""
        if self._request is None:
            raise RpcError(Status.INTERNAL, "server-streaming calls have one request, got none")

    def relieved(self) -> None:
        """Send the messages that waited for room."""
        self._send_soon()

    def gone(self) -> None:
        """Stop."""
        if self._is_gone:
            return
        self._is_gone = True
        if self._beginning is not None:
            self._watches.count -= 1
            self._beginning.cancel()
        if self._is_joined:
            self._watches.leave(self._template, self)
        self._items.clear()
        self._changes.clear()

    # Items and changes.

    async def _begin(self) -> None:
        """Wait until the index is up to date, and for the turn of this stream."""
        assert self._request is not None
        try:
            await self._service.feed.fresh()
        except (LeaseholdError, OSError) as error:
            self._stream.fail(error)
            self._stream.flush_soon()
            return
        async with self._watches.turn:
            await asyncio.sleep(0)  # other work runs before the next search
            await self._search(passing=self._request.passing)

    async def _search(self, *, passing: bool) -> None:
        """Find the items that match now, in slices; changes from now on are sent after them."""
        self._revision = self._service.index.revision
        self._is_joined = True
        self._watches.join(self._template, self)
        found = await self._service.search(self._template, passing=passing)
        self._items = await self._service.sort(found, len(found))
        self._items.reverse()
        self._is_found = self._has_items = True
        self._send_soon()

    def changed(self, change: IndexChange) -> None:
        """Queue a change that concerns this stream."""
        assert self._request is not None
        event = event_of(change, self._template, passing=self._request.passing)
        if event is None or self._is_gone:
            return
        self._changes.append(event)
        self._change_bytes += len(event.item)
        if len(self._changes) > MAX_CHANGES or self._change_bytes > MAX_CHANGE_BYTES:
            text = "the changes of the registry are not read fast enough: watch again"
            self._stream.end(RpcError(Status.RESOURCE_EXHAUSTED, text, detail=REFUSED))
            self._stream.flush_soon()
            return
        self._send_soon()

    # Sending.

    def _send_soon(self) -> None:
        """Send in the next turn of the event loop: several changes share a message."""
        if self._is_found and not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_sending = False
        while (self._has_items or self._changes) and not self._is_gone:
            if not self._stream.has_own_room:
                return  # `relieved` is called
            message = self._first_items() if self._has_items else self._first_changes()
            self._stream.send_message(message.SerializeToString(), 0)
            self._stream.flush_soon()

    def _first_items(self) -> pb.WatchItemsResponse:
        items: list[bytes] = []
        size_bytes = 0
        while self._items and len(items) < MESSAGE_ITEMS and size_bytes < MESSAGE_BYTES:
            items.append(encoded_item(self._items.pop()))
            size_bytes += len(items[-1])
        self._has_items = bool(self._items)
        return pb.WatchItemsResponse(
            items=items, is_complete=not self._has_items, revision=self._revision
        )

    def _first_changes(self) -> pb.WatchItemsResponse:
        count, size_bytes = 0, 0
        for event in islice(self._changes, MESSAGE_ITEMS):
            if count and size_bytes + len(event.item) > MESSAGE_BYTES:
                break
            size_bytes += len(event.item)
            count += 1
        changes = [self._changes.popleft() for _ in range(count)]
        self._change_bytes -= size_bytes
        return pb.WatchItemsResponse(changes=changes, revision=changes[-1].revision)
