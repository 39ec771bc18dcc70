"""The services of `leasehold serve` on an engine: mailboxes and the renewal service.

They share the shards of the server, the way to other servers on the same cluster, and the calls to
listeners. On an engine in this process there is one server, which owns all shards; on a cluster the
servers divide them.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from leasehold.basics.durations import Requested
from leasehold.basics.endpoint_list import EndpointList
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.errors import UnknownLease
from leasehold.events.listeners import CallbackPolicy, ListenerCalls
from leasehold.events.mailboxes import MailboxLimits, MailboxService
from leasehold.events.rpc import MailboxRpc
from leasehold.grpc.channel import Channel
from leasehold.grpc.routes import Method
from leasehold.leases.lease import Outcome
from leasehold.leases.policies import DurationPolicy
from leasehold.renewal.grantors import Credentials, Grantors
from leasehold.renewal.places import RenewOwn
from leasehold.renewal.rpc import RenewalRpc
from leasehold.renewal.service import RenewalLimits, RenewalService
from leasehold.server.engine_services import EngineService, ServiceHost
from leasehold.server.pages import Exposition
from leasehold.server.settings import RemoteEndpoints, ServiceSettings
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.forwarding import Forwarder, methods_of
from leasehold.services.record_leases import SERVICE, RecordLeases, RecordsRpc
from leasehold.services.shards import LocalShards, Shards


class StandardServices:
    """Mailboxes and the renewal service of one server."""

    def __init__(self, host: ServiceHost) -> None:
        settings, engine = host.settings.services, host.engine
        self._host = host
        self._is_local = isinstance(engine, EmbeddedEngine)
        self._shards: Shards = LocalShards(engine) if self._is_local else ElectedShards(engine, "")
        self._forwarder = Forwarder(self._shards, self._channel_to_server)
        policy = DurationPolicy(settings.set_maximum, settings.set_default)
        limits = MailboxLimits(events=settings.mailbox_events, bytes=settings.mailbox_bytes)
        self._mailboxes = MailboxService(engine, self._shards, policy, limits=limits)
        mailboxes = MailboxRpc(self._mailboxes, self._shards, self._forwarder)
        self._calls = ListenerCalls(mailboxes.deliver)
        self._grantors = _grantors_of(settings, host, self._renew_own)
        self._renewal = RenewalService(
            engine, self._shards, self._grantors, self._calls, _limits_of(settings)
        )
        renewal = RenewalRpc(self._renewal, self._forwarder, CallbackPolicy(settings.callbacks))
        self._leases = [
            RecordLeases(service.records, self._forwarder)
            for service in (self._mailboxes, self._renewal)
        ]
        records = methods_of(SERVICE, {"RenewAll": RecordsRpc(self._leases).renew_all})
        self._methods = {**mailboxes.methods(), **renewal.methods(), **records}

    def _channel_to_server(self, address: str) -> Channel:
        return Channel(address, tls=self._host.peer_tls)

    async def _renew_own(
        self,
        grantor: str,
        wants: Sequence[tuple[Hashable, Requested]],
        check: Callable[[Hashable], object],
    ) -> Sequence[Outcome]:
        """Renew leases of these services that are members of sets."""
        for leases in self._leases:
            if leases.grantor == grantor:
                return await leases.renew_all(wants, check)
        return [UnknownLease(cookie) for cookie, _ in wants]

    def methods(self) -> Mapping[str, Method]:
        """The methods, by path."""
        return self._methods

    def leases(self) -> Iterable[RecordLeases]:
        """The leases of mailboxes and sets."""
        return self._leases

    async def start(self) -> None:
        """Own shards, and load what is stored."""
        self._shards.address = self._host.address
        await self._renewal.start()
        # Sets first: their leases run.
        await self._shards.start([self._renewal.records, self._mailboxes.records])

    async def close(self) -> None:
        """Stop renewing and sending, then give up the shards."""
        await self._renewal.close()
        await self._shards.close()
        for records in (self._renewal.records, self._mailboxes.records):
            await records.close()
        await asyncio.gather(self._calls.close(), self._grantors.close(), self._forwarder.close())

    def metrics(self, out: Exposition) -> None:
        """Add the metrics of the services to a scrape."""
        renewal, mailboxes = self._renewal, self._mailboxes
        sender, renewals = renewal.sender, renewal.renewals
        out.gauge(
            "leasehold_service_shards",
            "Shards of the services that this server owns.",
            len(self._shards.all_owned),
        )
        out.gauge("leasehold_renewal_sets", "Renewal sets on this server.", len(renewal.records))
        out.gauge("leasehold_renewal_members", "Leases in these sets.", len(renewals))
        out.counter(
            "leasehold_renewal_retries_total",
            "Renewals of members that failed and were retried.",
            renewals.retries,
        )
        out.counter(
            "leasehold_renewal_failures_total",
            "Members that could not be kept alive.",
            renewal.failures,
        )
        out.counter(
            "leasehold_renewal_warnings_total", "Expiration warnings of sets.", renewal.warnings
        )
        out.histogram(
            "leasehold_renewal_warning_lateness_seconds",
            "How late expiration warnings were, in seconds.",
            renewal.warning_lateness_s,
        )
        out.histogram(
            "leasehold_renewal_lateness_seconds",
            "How late calls that renew members were, in seconds.",
            renewals.lateness_s,
        )
        out.gauge("leasehold_mailboxes", "Mailboxes on this server.", len(mailboxes.records))
        out.gauge(
            "leasehold_events_undelivered",
            "Events that were not delivered to their listeners yet.",
            sender.undelivered,
        )
        for name, what, value in (
            ("delivered", "Events that were delivered to listeners.", sender.events_delivered),
            ("expired", "Events that were dropped after a day.", sender.events_expired),
            ("failed_calls", "Calls to listeners that failed.", sender.failed_calls),
            ("rejected", "Listeners that refused their events.", sender.listeners_rejected),
        ):
            out.counter(f"leasehold_events_{name}_total", what, value)


def standard_services(host: ServiceHost) -> Sequence[EngineService]:
    """Make the services of `leasehold serve`."""
    return (StandardServices(host),)


def _limits_of(settings: ServiceSettings) -> RenewalLimits:
    return RenewalLimits(
        sets=settings.max_sets,
        members=settings.max_set_members,
        handback_bytes=settings.handback_bytes,
        reference_bytes=settings.reference_bytes,
        max_term=settings.set_maximum,
        default_term=settings.set_default,
    )


def _grantors_of(settings: ServiceSettings, host: ServiceHost, renew_own: RenewOwn) -> Grantors:
    return Grantors(
        host.engine,
        allowed=EndpointList(settings.renew_at),
        credentials={name: _credentials(each) for name, each in settings.credentials.items()},
        renew_own=renew_own,
        isolate_sets=settings.isolate_sets,
    )


def _credentials(entry: RemoteEndpoints) -> Credentials:
    files = (entry.ca, entry.cert, entry.key)
    ca, cert, key = (None if path is None else str(path) for path in files)
    return Credentials(EndpointList(entry.endpoints), ca, cert, key)
