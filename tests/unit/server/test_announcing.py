"""When a server announces its registrar, and what follows a failure; in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import ifaddr  # noqa: F401  its import runs `ldconfig`, which a test must not
import pytest

from leasehold.basics.addresses import TcpAddress
from leasehold.registry.registrar_groups import REGISTRAR_KEY, RegistrarGroups
from leasehold.server.engine_services import ServiceHost
from leasehold.server.member_groups import MemberGroupsService
from leasehold.server.settings import ServiceSettings, Settings
from leasehold.wire import admin_pb2 as pb
from tests.support.fake_network import virtually
from tests.support.held_watches import HeldEngine, held_engine

REACHABLE = TcpAddress("10.0.0.1", 2379)
LOOPBACK = TcpAddress("127.0.0.1", 2379)


class FakeAnnouncer:
    """Records the numbers of the groups that are announced."""

    numbers: ClassVar[list[int]] = []
    errors: ClassVar[list[Exception]] = []
    goodbyes: ClassVar[list[int]] = []
    """The number that was announced last, for each server that has stopped."""

    def __init__(self, registrar: str, endpoints: list[str], ttl_s: int) -> None:
        assert endpoints == ["http://10.0.0.1:2379"]

    async def announce(self, groups_number: int) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.numbers.append(groups_number)

    async def close(self) -> None:
        self.goodbyes.append(self.numbers[-1])


@pytest.fixture(autouse=True)
def announced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr("leasehold.discovery.announcements.Announcer", FakeAnnouncer)
    monkeypatch.setattr(FakeAnnouncer, "numbers", [])
    monkeypatch.setattr(FakeAnnouncer, "errors", [])
    monkeypatch.setattr(FakeAnnouncer, "goodbyes", [])
    return FakeAnnouncer.numbers


@asynccontextmanager
async def serving(
    engine: HeldEngine, *groups: str, bound: TcpAddress = REACHABLE
) -> AsyncIterator[MemberGroupsService]:
    settings = Settings(directory=None, services=ServiceSettings(groups=groups))
    host = ServiceHost(engine, settings, bound=[bound])
    service = MemberGroupsService(host)
    await service.start()
    try:
        yield service
    finally:
        await service.close()


@virtually
async def test_groups_of_the_settings_are_announced() -> None:
    async with held_engine() as engine, serving(engine, "a"):
        await asyncio.sleep(1)
    assert FakeAnnouncer.numbers == [1]


@virtually
async def test_a_server_that_stops_sends_a_goodbye() -> None:
    async with held_engine() as engine, serving(engine, "a"):
        await asyncio.sleep(1)
        assert FakeAnnouncer.goodbyes == []
    assert FakeAnnouncer.goodbyes == [1]


@virtually
async def test_a_registrar_that_never_had_groups_is_not_announced() -> None:
    async with held_engine() as engine, serving(engine):
        await asyncio.sleep(1)
        assert (await engine.range(REGISTRAR_KEY)).pairs == []
    assert FakeAnnouncer.numbers == []


@virtually
async def test_groups_that_another_server_sets_later_are_announced() -> None:
    async with held_engine() as engine, serving(engine):
        await RegistrarGroups(engine).set(["a"])
        await asyncio.sleep(1)
        assert FakeAnnouncer.numbers == [1]
        await RegistrarGroups(engine).set([])
        await asyncio.sleep(1)
        assert FakeAnnouncer.numbers == [1, 2]


@virtually
async def test_a_registrar_whose_groups_were_set_to_none_is_announced() -> None:
    request = pb.ChangeMemberGroupsRequest(change=pb.ChangeMemberGroupsRequest.SET)
    async with held_engine() as engine:
        async with serving(engine) as service:
            await service._changed(request)
            await asyncio.sleep(1)
            assert FakeAnnouncer.numbers == [1]
            await service._changed(request)
            await asyncio.sleep(1)
            assert FakeAnnouncer.numbers == [1]
        async with serving(engine):
            await asyncio.sleep(1)
            assert FakeAnnouncer.numbers == [1, 1]


@virtually
async def test_a_server_that_cannot_announce_watches_nothing_until_groups_are_set_there() -> None:
    async with held_engine() as engine, serving(engine, bound=LOOPBACK):
        await asyncio.sleep(1)
        assert engine.made == []


@pytest.mark.parametrize("error", [OSError("no network"), RuntimeError("a failure of zeroconf")])
@virtually
async def test_a_failure_to_announce_is_logged_and_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    FakeAnnouncer.errors = [error, error]
    async with held_engine() as engine, serving(engine, "a"):
        await asyncio.sleep(60)
        assert FakeAnnouncer.numbers == [1]
    assert caplog.text.count(str(error)) >= 2


@virtually
async def test_an_unknown_change_is_refused() -> None:
    request = pb.ChangeMemberGroupsRequest(groups=["a"])
    request.change = 7  # type: ignore[assignment]
    async with held_engine() as engine, serving(engine, "b") as service:
        context: Any = None
        with pytest.raises(ValueError, match="change must be ADD, SET or REMOVE, got 7"):
            await service._change(request.SerializeToString(), context)
        assert (await service._registrar.get()).names == ("b",)
