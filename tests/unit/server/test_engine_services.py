"""Services on an engine: the order of start and close, their methods, leases and metrics."""

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from leasehold.basics.addresses import TcpAddress
from leasehold.basics.durations import ANY, Requested
from leasehold.errors import EndReason, LeaseDenied, Status, UnknownLease
from leasehold.grpc.routes import Answer, Exchange, Method
from leasehold.leases.lease import Outcome
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.server import engine_services
from leasehold.server.engine_services import EngineService, EngineServices, ServiceHost
from leasehold.server.leases.service_leases import ServiceLeases
from leasehold.server.pages import Exposition
from leasehold.server.settings import Settings
from leasehold.wire import leases_pb2 as pb
from tests.support.asynchronous import asynchronous
from tests.support.v1 import Office, in_office_with, refusal

GRANTOR = "0000000000000001/demo"


class DemoLeases:
    """The leases of a service: those that are in `terms`."""

    grantor = GRANTOR

    def __init__(self) -> None:
        self.wants: list[tuple[Hashable, Requested]] = []

    async def renew_all(self, wants: Sequence[tuple[Hashable, Requested]]) -> Sequence[Outcome]:
        self.wants += wants
        await asyncio.sleep(0)
        return [self._outcome(cookie) for cookie, _ in wants]

    def _outcome(self, cookie: Hashable) -> Outcome:
        if cookie == "denied":
            return LeaseDenied("not you", lease=cookie, requested=ANY)
        return 5.0 if cookie == "set" else UnknownLease(cookie, EndReason.EXPIRED)


class DemoService(EngineService):
    """A service that records what happens to it."""

    def __init__(self, name: str, seen: list[str], failing: str = "", grantor: str = "") -> None:
        self._name = name
        self._seen = seen
        self._failing = failing
        self._leases = DemoLeases()
        self._leases.grantor = grantor or name

    def methods(self) -> Mapping[str, Method]:
        return {f"/demo.{self._name}/Call": Exchange(self._call)}

    def _call(self, message: bytes) -> Answer:
        return message, 0

    def leases(self) -> Iterable[ServiceLeases]:
        return [self._leases]

    async def start(self) -> None:
        self._note("start")

    async def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self._seen.append(f"{what} {self._name}")
        if self._failing == what:
            raise RuntimeError(what)

    def metrics(self, out: Exposition) -> None:
        out.gauge(f"demo_{self._name}", "A demonstration.", 1)


@asynchronous
async def test_services_are_closed_in_reverse_order_of_their_start() -> None:
    seen: list[str] = []
    services = EngineServices([DemoService(name, seen) for name in "ab"])
    await services.start()
    await services.close()
    assert seen == ["start a", "start b", "close b", "close a"]
    await services.close()
    assert len(seen) == 4, "once each"


@asynchronous
async def test_a_service_that_fails_to_start_is_closed_and_later_ones_are_not_started() -> None:
    seen: list[str] = []
    services = EngineServices(
        [DemoService("a", seen), DemoService("b", seen, "start"), DemoService("c", seen)]
    )
    with pytest.raises(RuntimeError):
        await services.start()
    await services.close()
    assert seen == ["start a", "start b", "close b", "close a"]


@asynchronous
async def test_a_service_that_cannot_be_closed_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_services, "CLOSE_S", 0.01)
    seen: list[str] = []
    hanging = DemoService("b", seen)

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(hanging, "close", hang)
    services = EngineServices([DemoService("a", seen), hanging, DemoService("c", seen, "close")])
    await services.start()
    await services.close()
    assert seen[-2:] == ["close c", "close a"]
    assert caplog.text.count("DemoService was not closed cleanly") == 2


def test_methods_grantors_and_metrics_of_all_services_are_there() -> None:
    services = EngineServices([DemoService(name, []) for name in "ab"])
    assert services.methods().keys() == {"/demo.a/Call", "/demo.b/Call"}
    assert services.grantors.keys() == {"a", "b"}
    out = Exposition()
    services.show(out)
    assert b"demo_a 1\n" in out.encode()
    assert b"demo_b 1\n" in out.encode()


def test_two_services_with_one_grantor_are_refused() -> None:
    with pytest.raises(ValueError, match="two services have the grantor 'x'"):
        EngineServices([DemoService(name, [], grantor="x") for name in "ab"])


def test_the_advertised_address_is_the_set_one_or_the_first_that_is_bound() -> None:
    bound = [TcpAddress("127.0.0.1", 7), TcpAddress("127.0.0.1", 8)]
    chosen = Settings(directory=Path("x"), advertise=TcpAddress("a.example", 9))
    no_engine: Any = None
    for settings, is_tls, address in (
        (Settings(), False, "http://127.0.0.1:7"),
        (Settings(), True, "https://127.0.0.1:7"),
        (chosen, True, "a.example:9"),
    ):
        host = ServiceHost(no_engine, settings)
        host.listens_on(bound, is_tls=is_tls)
        assert host.address == address


# Leases of services in batches of `leasehold.v1.Leases`.

COOKIES = [name_to_bytes(each) for each in ("set", "gone", "denied")]


def with_service(leases: DemoLeases) -> dict[str, ServiceLeases]:
    return {GRANTOR: leases}


def test_a_renewal_of_a_grantor_of_a_service_is_passed_to_it() -> None:
    leases = DemoLeases()

    @in_office_with(grantors=with_service(leases))
    async def run(office: Office) -> None:
        answer = await office.renew_all(cookies=COOKIES, grantor=GRANTOR, ttls_ms=[7000, -1, -2])
        assert [each for each, _ in leases.wants] == ["set", "gone", "denied"]
        assert leases.wants[:2] == [("set", 7.0), ("gone", ANY)]
        assert answer.header.cluster_id == 1
        assert answer.ttl_ms == 5000
        assert list(answer.unknown) == [1]
        assert list(answer.unknown_reasons) == [pb.EXPIRED]
        assert [(each.place, each.denied) for each in answer.failures] == [(2, True)]

    run()


def test_a_revocation_is_passed_to_the_service_with_terms_of_zero() -> None:
    leases = DemoLeases()

    @in_office_with(grantors=with_service(leases))
    async def run(office: Office) -> None:
        answer = await office.revoke_all(cookies=COOKIES[:2], grantor=GRANTOR)
        assert leases.wants == [("set", 0.0), ("gone", 0.0)]
        assert list(answer.unknown) == [1]

    run()


def test_other_batches_are_answered_by_the_server_as_before() -> None:
    leases = DemoLeases()

    @in_office_with(grantors=with_service(leases))
    async def run(office: Office) -> None:
        lease = (await office.grant()).id
        assert (await office.renew_all(lease)).ttl_ms == 10_000
        assert list((await office.renew_all(lease, grantor=GRANTOR)).unknown) == [0]
        error = await refusal(office.renew_all(cookies=COOKIES))
        assert error.status is Status.INVALID_ARGUMENT
        assert not leases.wants

    run()


def test_a_service_that_gives_too_few_outcomes_fails_the_call() -> None:
    class Silent(DemoLeases):
        async def renew_all(self, wants: Sequence[tuple[Hashable, Requested]]) -> Sequence[Outcome]:
            return []

    @in_office_with(grantors=with_service(Silent()))
    async def run(office: Office) -> None:
        with pytest.raises(Exception, match="0 outcomes for 3 leases"):
            await office.renew_all(cookies=COOKIES, grantor=GRANTOR)

    run()
