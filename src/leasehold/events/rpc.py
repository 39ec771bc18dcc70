"""Mailboxes on the network: `leasehold.v1.Mailboxes`, and `leasehold.v1.Listener` to fill them.

Any server takes a call. One for a mailbox of another server's shard is passed on to that server.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from leasehold.basics.durations import check_positive, from_wire_ms, to_wire_ms
from leasehold.events.listeners import NOTIFY, event_of, notify_message
from leasehold.events.mailboxes import MailboxService, MailboxState
from leasehold.events.state import RemoteEvent
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError, parse
from leasehold.grpc.routes import Method
from leasehold.services.forwarding import Forwarder, Handler, methods_of
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.shards import Shards
from leasehold.wire import events_pb2 as pb
from leasehold.wire.services_pb2 import StoredMail

MAX_LISTED: Final = 1_000
"""Mailboxes in one page of a list."""


class MailboxRpc:
    """The methods of mailboxes, and the way to mailboxes for the services of this server."""

    def __init__(self, service: MailboxService, shards: Shards, forwarder: Forwarder) -> None:
        self._service = service
        self._records = service.records
        self._shards = shards
        self._forwarder = forwarder

    def methods(self) -> dict[str, Method]:
        """The methods of both services, by path."""
        calls = self._forwarder
        mailboxes: dict[str, Handler] = {
            "Create": calls.anywhere(self.create),
            "Read": calls.at_owner(pb.ReadMailboxRequest, "mailbox", self.read),
            "Acknowledge": calls.at_owner(pb.AcknowledgeRequest, "mailbox", self.acknowledge),
            "Show": calls.at_owner(pb.ShowMailboxRequest, "mailbox", self.show),
            "List": self.list_all,
        }
        notify = calls.at_owner(pb.NotifyRequest, "listener", self.notify)
        return methods_of("leasehold.v1.Mailboxes", mailboxes) | methods_of(
            "leasehold.v1.Listener", {"Notify": notify}
        )

    async def deliver(self, mailbox: str, events: Sequence[RemoteEvent]) -> None:
        """Put events into a mailbox of any server of the cluster; for `ListenerCalls`."""
        shard = self._shards.shard_of(mailbox)
        if self._shards.owned(shard) is not None:
            await self._service.deliver(mailbox, events)
            return
        message = notify_message(mailbox, events)
        try:
            await self._forwarder.pass_on(shard, NOTIFY, message)
        except RpcError as error:
            raise as_ours(error, len(message)) from error

    # The methods, at the server of the mailbox.

    async def notify(self, request: pb.NotifyRequest, _context: CallContext) -> bytes:
        """Store events in a mailbox."""
        await self._service.deliver(request.listener, list(map(event_of, request.events)))
        return pb.NotifyResponse().SerializeToString()

    async def create(self, message: bytes, _context: CallContext) -> bytes:
        """Create a mailbox."""
        request = parse(pb.CreateMailboxRequest.FromString, message)
        requested = check_positive(from_wire_ms(request.ttl_ms), "ttl_ms")
        mailbox, granted = await self._service.create(requested)
        return pb.CreateMailboxResponse(
            id=mailbox, ttl_ms=to_wire_ms(granted), grantor=self._records.grantor
        ).SerializeToString()

    async def read(self, request: pb.ReadMailboxRequest, _context: CallContext) -> bytes:
        """Return events after a position."""
        mails = await self._service.read(
            request.mailbox, request.after, request.limit, request.wait_ms / 1000.0
        )
        answer = pb.ReadMailboxResponse()
        for mail in mails:
            event = StoredMail.FromString(mail.value).event
            answer.events.add(position=mail.position, event=event)
        return answer.SerializeToString()

    async def acknowledge(self, request: pb.AcknowledgeRequest, _context: CallContext) -> bytes:
        """Drop events up to a position."""
        await self._service.acknowledge(request.mailbox, request.position)
        return pb.AcknowledgeResponse().SerializeToString()

    async def show(self, request: pb.ShowMailboxRequest, _context: CallContext) -> bytes:
        """Return the state of a mailbox."""
        return self._info(self._records.find(request.mailbox)).SerializeToString()

    def _info(self, record: LeasedRecord[MailboxState]) -> pb.MailboxInfo:
        return pb.MailboxInfo(
            id=record.id,
            remaining_ms=to_wire_ms(record.remaining),
            events=len(record.state),
            bytes=record.state.bytes,
            grantor=self._records.grantor,
        )

    async def list_all(self, message: bytes, context: CallContext) -> bytes:
        """Return a page of the mailboxes of all servers, in the order of their ids."""
        request = parse(pb.ListMailboxesRequest.FromString, message)
        self._forwarder.check_operator(context, "mailboxes")
        own = (self._info(record) for record in self._records if record.id > request.after)

        def others(answer: bytes) -> Iterable[pb.MailboxInfo]:
            return pb.ListMailboxesResponse.FromString(answer).mailboxes

        found = await self._forwarder.listed(message, context, own, others)
        page = found[:MAX_LISTED]
        has_more = len(found) > MAX_LISTED
        return pb.ListMailboxesResponse(
            mailboxes=page, next=page[-1].id if has_more else ""
        ).SerializeToString()
