"""The services of `leasehold serve` on an engine: mailboxes, renewal, registry and discovery.

Their administration, announcements of the registrar, and the upkeep of files are services of their
own.

They share the shards of the server, the way to other servers on the same cluster, and the calls to
listeners. On an engine in this process there is one server, which owns all shards; on a cluster the
servers divide them.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leasehold.basics.durations import Requested
from leasehold.basics.endpoint_list import EndpointList
from leasehold.discovery.interest_limits import DiscoveryLimits
from leasehold.discovery.registrar_search import RealNetwork
from leasehold.discovery.rpc import DiscoveryRpc
from leasehold.discovery.service import DiscoveryService
from leasehold.engine.embedded import EmbeddedEngine
from leasehold.errors import UnknownLease
from leasehold.events.listeners import CallbackPolicy, ListenerCalls
from leasehold.events.mailboxes import MailboxLimits, MailboxService
from leasehold.events.rpc import MailboxRpc
from leasehold.grpc.channel import Channel
from leasehold.grpc.routes import Method
from leasehold.leases.lease import Outcome
from leasehold.leases.policies import DurationPolicy
from leasehold.registry.dns_counts import DnsCounts
from leasehold.registry.item_events import ItemEvents
from leasehold.registry.own_services import DISCOVERY, REGISTRAR, RENEWAL
from leasehold.registry.rpc import RegistryLeases, RegistryRpc
from leasehold.registry.service import RegistryService
from leasehold.renewal.grantor_connections import RenewOwn
from leasehold.renewal.grantors import Credentials, Grantors
from leasehold.renewal.rpc import RenewalRpc
from leasehold.renewal.service import RenewalLimits, RenewalService
from leasehold.server.administration import AdministrationService
from leasehold.server.engine_services import EngineService, ServiceHost
from leasehold.server.file_upkeep import FileUpkeep
from leasehold.server.joining import ServiceJoins
from leasehold.server.leases.service_leases import ServiceLeases
from leasehold.server.member_groups import MemberGroupsService
from leasehold.server.pages import Exposition
from leasehold.server.settings import RemoteEndpoints, ServiceSettings
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.forwarding import Forwarder, methods_of
from leasehold.services.record_leases import SERVICE, RecordLeases, RecordsRpc
from leasehold.services.shards import LocalShards, Shards

if TYPE_CHECKING:  # they need dnspython, an extra
    from leasehold.registry.dns_server import DnsServer

logger = logging.getLogger("leasehold.server")


class DnsAddressError(OSError):
    """The address for DNS cannot be used."""


class StandardServices(EngineService):
    """Mailboxes, renewal, registry and discovery of one server."""

    def __init__(self, host: ServiceHost) -> None:
        settings, engine = host.settings.services, host.engine
        self._host = host
        self._is_local = isinstance(engine, EmbeddedEngine)
        self._shards: Shards = LocalShards(engine) if self._is_local else ElectedShards(engine, "")
        self._forwarder = Forwarder(self._shards, self._channel_to_server)
        of_boxes = DurationPolicy(settings.set_maximum, settings.set_default)
        limits = MailboxLimits(events=settings.mailbox_events, bytes=settings.mailbox_bytes)
        self._mailboxes = MailboxService(engine, self._shards, of_boxes, limits=limits)
        mailboxes = MailboxRpc(self._mailboxes, self._shards, self._forwarder)
        self._calls = ListenerCalls(mailboxes.deliver)
        self._grantors = _grantors_of(settings, host, self._renew_own)
        self._renewal = RenewalService(
            engine, self._shards, self._grantors, self._calls, _limits_of(settings)
        )
        callbacks = CallbackPolicy(settings.callbacks)
        renewal = RenewalRpc(self._renewal, self._forwarder, callbacks)
        policy = DurationPolicy(settings.registry_maximum, settings.registry_default)
        self._registry = RegistryService(engine, policy, endpoint=lambda: host.address)
        self._item_events = ItemEvents(
            engine,
            self._shards,
            self._registry.feed,
            self._calls,
            policy,
            max_handback_bytes=settings.handback_bytes,
        )
        registry = RegistryRpc(
            self._registry, self._item_events, self._forwarder, callbacks, self._endpoints
        )
        self._watches = registry.watches
        of_discoveries = DurationPolicy(settings.discovery_maximum, settings.discovery_default)
        self._discovery = DiscoveryService(
            engine,
            self._shards,
            RealNetwork(host.peer_tls),
            self._calls,
            of_discoveries,
            DiscoveryLimits(
                registrations=settings.max_discoveries,
                handback_bytes=settings.handback_bytes,
                locators_allowed=EndpointList(settings.discover_at),
            ),
        )
        discovery = DiscoveryRpc(self._discovery, self._forwarder, callbacks)
        self._joins = ServiceJoins(host, self._shards, self._registry.feed)
        bounded = {
            REGISTRAR: [policy],
            RENEWAL: [self._renewal.policy, of_boxes],
            DISCOVERY: [of_discoveries],
        }
        self.administration = AdministrationService(host, self._joins, bounded)
        """To be started after these services."""
        of_mailboxes, of_sets, of_events, of_discovery = (
            RecordLeases(service.records, self._forwarder)
            for service in (self._mailboxes, self._renewal, self._item_events, self._discovery)
        )
        of_items = RegistryLeases(self._registry.storage, of_events)
        self._dns = None if settings.dns is None else _dns_of(settings.dns_domain, self._registry)
        self._leases: list[RecordLeases | RegistryLeases] = [
            *(of_mailboxes, of_sets, of_items, of_discovery)
        ]
        of_records = RecordsRpc([of_mailboxes, of_sets, of_events, of_discovery])
        records = methods_of(SERVICE, {"RenewAll": of_records.renew_all})
        self._methods = {
            **mailboxes.methods(),
            **renewal.methods(),
            **registry.methods(),
            **discovery.methods(),
            **records,
        }

    def _endpoints(self) -> list[str]:
        """Return where the servers of the cluster are reached, this one first."""
        shards = self._shards
        addresses = (shards.address_of(number) for number in range(shards.count))
        return list(dict.fromkeys(filter(None, (self._host.address, *addresses))))

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

    def leases(self) -> Iterable[ServiceLeases]:
        """The leases of mailboxes, sets, items and registrations."""
        return self._leases

    async def start(self) -> None:
        """Own shards, and load what is stored."""
        self._shards.address = self._host.address
        await self._renewal.start()
        await self._item_events.start()
        await self._discovery.start()
        # Sets first: their leases run.
        records = (self._renewal.records, self._item_events.records, self._mailboxes.records)
        await self._shards.start([*records, self._discovery, self._joins])
        await self._registry.start()
        address = self._host.settings.services.dns
        if self._dns is not None and address is not None:
            self._registry.feed.begin()
            try:
                bound = await self._dns.start(address)
            except OSError as error:
                why = f"cannot answer DNS queries on {address}: {error.strerror or error}"
                raise DnsAddressError(error.errno, why) from None
            logger.info("DNS queries for services are answered on %s", bound)

    async def close(self) -> None:
        """Stop renewing and sending, then give up the shards."""
        if self._dns is not None:
            await self._dns.close()
        await self._discovery.close()
        await self._item_events.close()
        await self._registry.close()
        await self._renewal.close()
        await self._shards.close()
        for records in (
            self._renewal.records,
            self._item_events.records,
            self._mailboxes.records,
            self._discovery.records,
        ):
            await records.close()
        await asyncio.gather(self._calls.close(), self._grantors.close(), self._forwarder.close())

    def metrics(self, out: Exposition) -> None:
        """Add the metrics of the services to a scrape."""
        renewal, mailboxes = self._renewal, self._mailboxes
        renewals = renewal.renewals
        senders = (renewal.sender, self._item_events.sender, self._discovery.sender)
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
            sum(each.undelivered for each in senders),
        )
        for name, what, attribute in (
            ("delivered", "Events that were delivered to listeners.", "events_delivered"),
            ("expired", "Events that were dropped after a day.", "events_expired"),
            ("failed_calls", "Calls to listeners that failed.", "failed_calls"),
            ("rejected", "Listeners that refused their events.", "listeners_rejected"),
        ):
            value = sum(getattr(each, attribute) for each in senders)
            out.counter(f"leasehold_events_{name}_total", what, value)
        self._registry_metrics(out)

        self._discovery_metrics(out)

    def _discovery_metrics(self, out: Exposition) -> None:
        discovery = self._discovery
        out.gauge(
            "leasehold_discovery_registrations",
            "Registrations of the discovery service on this server.",
            len(discovery.records),
        )
        out.gauge(
            "leasehold_discovery_registrars",
            "Registrars that these registrations have.",
            discovery.registrars,
        )
        out.counter(
            "leasehold_discovery_dropped_events_total",
            "Events that were dropped because too many were not delivered.",
            discovery.dropped,
        )

    def _registry_metrics(self, out: Exposition) -> None:
        registry, events = self._registry, self._item_events
        for name, what, value in (
            ("items", "Items of the registry.", registry.feed.items),
            (
                "undecodable_items",
                "Items of the registry that cannot be decoded.",
                len(registry.feed.undecodable),
            ),
            ("listeners", "Registrations for events on this server.", len(events.records)),
            ("watches", "Watches of items on this server.", self._watches.count),
        ):
            out.gauge(f"leasehold_registry_{name}", what, value)
        out.counter("leasehold_registry_lookups_total", "Lookups of items.", registry.lookups)
        out.counter(
            "leasehold_registry_resyncs_total",
            "Events that request a new lookup, because others were lost.",
            events.resyncs,
        )
        self._dns_metrics(out, DnsCounts() if self._dns is None else self._dns.counts)

    def _dns_metrics(self, out: Exposition, counts: DnsCounts) -> None:
        out.family(
            "leasehold_dns_answers_total",
            "counter",
            "Answers to DNS queries, by response code.",
            [({"rcode": rcode}, count) for rcode, count in counts.answers.items()],
        )
        out.counter(
            "leasehold_dns_truncated_total",
            "DNS answers over UDP without all records, because they were too long.",
            counts.truncated,
        )
        out.counter(
            "leasehold_dns_dropped_total",
            "DNS queries and connections without an answer, because there were too many.",
            counts.dropped,
        )


def standard_services(host: ServiceHost) -> Sequence[EngineService]:
    """Make the services of `leasehold serve`."""
    services = StandardServices(host)
    return (services, services.administration, MemberGroupsService(host), FileUpkeep(host))


def _dns_of(domain: str, registry: RegistryService) -> "DnsServer":
    """Return the DNS server; ImportError without the extra `leasehold[dns]`."""
    from leasehold.registry.dns_server import DnsServer, NamedLookup  # noqa: PLC0415
    from leasehold.registry.dns_zone import DnsZone  # noqa: PLC0415

    return DnsServer(DnsZone(NamedLookup(registry), domain))


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
