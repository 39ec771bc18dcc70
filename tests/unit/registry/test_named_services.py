"""Services by name: as items, picked, and kept registered."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import leasehold as lh
import leasehold.sync
from leasehold import (
    Client,
    FunctionCheck,
    Health,
    RegisteredService,
    Service,
    ServiceChangeKind,
    UnknownLease,
)
from leasehold.registry import named_services, registered_service
from leasehold.registry.codecs import decode_descriptor
from leasehold.registry.named_items import (
    MAX_FAILURES,
    Picker,
    ServiceAddress,
    named_item,
    named_template,
    service_of,
)
from leasehold.registry.registered_service import RETRIES
from leasehold.registry.state import Item
from tests.support.asynchronous import asynchronous

DEADLINE_S = 30.0
A, B, C = (Service(each, "web", f"{each}:1") for each in "abc")

# Services as items.


def test_a_service_is_an_item() -> None:
    item = named_item("web", "a:1", ["v2", "eu"], {"zone": 3, "empty": None})
    assert item.type_names == {"web"}
    assert item.endpoint == "a:1"
    assert item.descriptor is not None
    assert item.descriptor.type == "leasehold.Service"
    assert decode_descriptor(item.descriptor) == ServiceAddress("web", "a:1")
    found = service_of(item, "web")
    assert (set(found.tags), dict(found.metadata)) == ({"v2", "eu"}, {"zone": 3})
    assert named_template("web").matches(item)
    assert named_template("web", "eu").matches(item)
    assert not named_template("web", "us").matches(item)
    assert not named_template("db").matches(item)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("web", ""), ValueError),
        (("", "a:1"), ValueError),
        ((7, "a:1"), TypeError),
        (("web", None), TypeError),
        (("web", "a:1", "v2"), TypeError),
        (("web", "a:1", [7]), TypeError),
        (("web", "a:1", [], {"f": {1, 2}}), ValueError),
    ],
)
def test_malformed_services_are_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        named_item(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"metadata": ["a"]}, TypeError, "metadata must be a mapping of names, not ['a']"),
        ({"metadata": "zone=3"}, TypeError, "metadata must be a mapping of names, not 'zone=3'"),
        ({"metadata": {1: 2}}, TypeError, "metadata must have names of type str, not 1"),
        (
            {"metadata": {"a": {1}}},
            ValueError,
            "metadata 'a' must be a JSON value: Object of type ",
        ),
        ({"metadata": {"a": "\udcff"}}, ValueError, "metadata 'a' must be valid UTF-8, got '"),
        ({"tags": None}, TypeError, "tags must be a sequence of str, not None"),
        ({"tags": 7}, TypeError, "tags must be a sequence of str, not 7"),
    ],
)
def test_an_error_names_the_argument(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        named_item("web", "a:1", **arguments)


# Picking.


def test_round_robin_takes_turns() -> None:
    picker = Picker()
    chosen = [picker.choose([B, A, C], "round_robin") for _ in range(4)]
    assert chosen == [A, B, C, A]
    assert picker.choose([A, C], "round_robin") == C  # one has left
    assert picker.choose([], "round_robin") is None


def test_least_recently_failed_avoids_those_that_failed_last() -> None:
    picker = Picker()

    def choose(*services: Service) -> Service | None:
        return picker.choose(services, "least_recently_failed")

    assert [choose(A, B) for _ in range(2)] == [A, B]
    picker.failed("a")
    assert [choose(A, B) for _ in range(2)] == [B, B]
    picker.failed("b")
    assert choose(A, B) == A  # it failed earlier
    assert choose(B) == B
    assert choose(A, B) == A  # the failure of one that had left is forgotten


def test_only_some_failures_are_remembered() -> None:
    picker = Picker()
    for number in range(MAX_FAILURES):
        picker.failed(f"x{number}")
    picker.failed("x0")
    picker.failed("a")
    assert [*picker.failures] == [*(f"x{each}" for each in range(2, MAX_FAILURES)), "x0", "a"]


# Kept registered. The engine is in this process, in real time.


def on_engine(test: Callable[[Client], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    @wraps(test)
    def run(tmp_path: Path) -> None:
        async def main() -> None:
            async with asyncio.timeout(DEADLINE_S), lh.open(tmp_path) as client:
                await test(client)

        asyncio.run(main())

    del run.__wrapped__
    return run


async def passing(client: Client, name: str = "web") -> set[str]:
    items = await client.registry.passing(named_template(name))
    return {item.endpoint for item in items}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; `on_engine` sets the deadline."""
    while not await condition():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0.01)


async def until_passing(client: Client, *endpoints: str) -> None:
    async def is_so() -> bool:
        return await passing(client) == set(endpoints)

    await until(is_so)


@asynchronous
async def test_only_some_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_services, "MAX_PICKERS", 2)

    class Empty:
        async def passing(self, _template: object, *, timeout: object) -> list[Item]:  # noqa: ASYNC109
            assert timeout is None
            return []

    keeper: Any = SimpleNamespace(random=Random(1))
    registry: Any = Empty()
    unused: Any = (None, None)
    named = named_services.NamedServices(registry, keeper, *unused)
    for name in ("a", "b", "a", "c"):
        assert await named.pick(name, None, "round_robin", None) is None
    assert [name for name, _ in named._pickers] == ["a", "c"]


@on_engine
async def test_a_service_is_registered_while_its_block_runs(client: Client) -> None:
    async with client.register("web", "a:1") as service:
        assert service.is_registered
        assert service.health is Health.PASSING
        assert await passing(client) == {"a:1"}
    assert await passing(client) == set()
    assert service.id == ""
    assert list(await client.leases()) == []
    await service.close()  # again has no effect


@on_engine
async def test_a_service_has_a_lease_of_its_own_by_default(client: Client) -> None:
    async with client.register("web", "a:1", ttl=30), client.register("web", "b:1"):
        assert sorted(each.ttl for each in await client.leases()) == [15.0, 30.0]


@on_engine
async def test_services_share_the_session_or_a_lease(client: Client) -> None:
    async with client.lease(20) as lease:
        async with client.register("web", "a:1", lease=lease):
            async with client.register("web", "b:1", lease=lease.id):
                assert await passing(client) == {"a:1", "b:1"}
                assert len(await client.leases()) == 1
            assert await passing(client) == {"a:1"}
        assert await passing(client) == set()
        assert lease.is_held
    shared: Any = {"lease": "session"}
    async with client.register("web", "a:1", **shared), client.register("web", "b:1", **shared):
        assert await passing(client) == {"a:1", "b:1"}
        assert len(await client.leases()) == 1
    assert await passing(client) == set()


@on_engine
async def test_a_service_under_a_given_lease_ends_with_it(client: Client) -> None:
    async with client.lease(20) as lease:
        service = await client.register("web", "a:1", lease=lease)
        numbered = await client.register("web", "b:1", lease=lease.id)
        await lease.end()
        assert not service.is_registered
        assert await passing(client) == set()
        numbered.update(tags=["x"])
        await until(partial(_is_over, numbered))
        assert await passing(client) == set()


async def _is_over(service: RegisteredService) -> bool:
    return not service.is_registered


async def _is_registered(service: RegisteredService) -> bool:
    return service.is_registered


@on_engine
async def test_a_service_whose_lease_was_lost_is_registered_again(client: Client) -> None:
    async with client.register("web", "a:1", ttl=0.5) as service:
        before, (lease,) = service.id, await client.leases()
        await client.revoke(lease.id)
        assert await passing(client) == set()
        await until_passing(client, "a:1")
        await until(partial(_is_registered, service))  # its item is there before its answer
        assert service.id == before


@asynchronous
async def test_services_under_a_session_that_was_lost_are_registered_again(tmp_path: Path) -> None:
    shared: Any = {"lease": "session"}
    async with (
        lh.open(tmp_path, session_ttl=0.5) as client,
        client.register("web", "a:1", **shared),
        client.register("web", "b:1", **shared),
    ):
        (lease,) = await client.leases()
        await client.revoke(lease.id)
        assert await passing(client) == set()
        await until_passing(client, "a:1", "b:1")
        (another,) = await client.leases()
        assert another.id != lease.id


def test_the_pauses_before_another_attempt_grow_from_1_s_to_1_min() -> None:
    assert (RETRIES[0], RETRIES[-1]) == (1.0, 60.0)


@on_engine
async def test_a_service_that_was_replaced_is_registered_again_when_it_changes(
    client: Client,
) -> None:
    async with client.register("web", "a:1") as service:
        other = await client.registry.register(named_item("web", "a:1", ["other"]), 30)
        assert other.id == service.id
        service.update(tags=["mine"])

        async def is_mine() -> bool:
            return await client.pick("web", tag="mine") is not None

        await until(is_mine)
        with pytest.raises(UnknownLease):
            await other.set_health(Health.FAILING)


@on_engine
async def test_a_service_that_another_process_registered_later_is_taken_back_when_that_ends(
    client: Client,
) -> None:
    async with client.register("web", "a:1", ttl=0.5) as first:
        async with client.register("web", "a:1", ttl=0.5) as second:
            await until(partial(_is_over, first))
            assert first.id == ""
            assert second.is_registered
            assert await passing(client) == {"a:1"}
            first.maintain()  # has no effect on the registration of the other
            first.maintain(is_on=False)
        await until_passing(client, "a:1")
        await until(partial(_is_registered, first))
    assert await passing(client) == set()


@on_engine
async def test_the_health_of_a_service_that_was_replaced_is_written_when_it_is_taken_back(
    client: Client,
) -> None:
    async with client.register("web", "a:1", ttl=0.5) as first:
        async with client.register("web", "a:1", ttl=0.5) as second:
            first.maintain()
            await until(partial(_is_over, first))
            assert second.is_registered
            assert await passing(client) == {"a:1"}
        await until(partial(_is_registered, first))
        found = await client.registry.lookup(named_template("web"))
        assert found is not None
        assert found.health is Health.MAINTENANCE


@on_engine
async def test_an_item_that_another_program_removed_is_registered_again(client: Client) -> None:
    async with client.register("web", "a:1", ttl=0.5) as service:
        await client.kv.delete(f"leasehold/items/{service.id}")
        await until_passing(client, "a:1")


@on_engine
async def test_a_failure_is_reported_with_the_service(client: Client) -> None:
    with pytest.raises(TypeError, match="must be a Service, as `pick` returns it, not 'a:1'"):
        client.report_failure("a:1")  # type: ignore[arg-type]


def test_a_failure_is_reported_with_the_service_in_blocking_code() -> None:
    with leasehold.sync.open("memory:") as client, pytest.raises(TypeError, match="not 'a:1'"):
        client.report_failure("a:1")  # type: ignore[arg-type]


@asynchronous
async def test_changes_of_a_service_are_logged_with_their_reasons(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_good = True

    async def probe() -> bool:
        return is_good

    check = FunctionCheck(probe, interval=0.01)
    async with lh.open(tmp_path) as client, client.register("web", "a:1", check=check) as service:
        is_good = False
        await until_passing(client)
        assert caplog.messages == ["service web at a:1 is failing: the function has returned False"]
        is_good = True
        await until_passing(client, "a:1")
        assert caplog.messages[1:] == ["service web at a:1 is passing"]
        await client.kv.delete(f"leasehold/items/{service.id}")
        is_good = False
        await until(partial(_was_logged, caplog, "service web at a:1 is registered again"))


async def _was_logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.messages


def test_the_check_of_a_registration_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_service, "CHECK", 0.001)

    async def main() -> None:
        async with lh.open(tmp_path) as client, client.register("web", "a:1") as service:
            assert service._registration is not None
            checks = asyncio.Event()
            change = service._registration.set_health

            async def counted(health: Health) -> None:
                await change(health)
                checks.set()

            service._registration = SimpleNamespace(  # type: ignore[assignment]
                id=service.id, set_health=counted, cancel=service._registration.cancel
            )
            before = (await client.engine.range(b"none")).revision
            for _ in range(3):
                checks.clear()
                await checks.wait()
            assert (await client.engine.range(b"none")).revision == before

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


@on_engine
async def test_tags_and_metadata_are_updated(client: Client) -> None:
    async with client.register("web", "a:1", tags=["x"], metadata={"zone": 1}) as service:
        service.update(metadata={"zone": 2})

        async def is_updated() -> bool:
            found = await client.pick("web", tag="x")
            return found is not None and found.metadata["zone"] == 2

        await until(is_updated)


@on_engine
async def test_only_passing_services_are_found_for_use(client: Client) -> None:
    async with client.register("web", "a:1") as service, client.register("web", "b:1"):
        service.maintain()
        await until_passing(client, "b:1")
        assert {(await client.pick("web")).endpoint for _ in range(4)} == {"b:1"}  # type: ignore[union-attr]
        found = await client.registry.lookup(named_template("web"), 10)
        assert {item.health for item in found.items if item} == {
            Health.MAINTENANCE,
            Health.PASSING,
        }
        service.maintain(is_on=False)
        await until_passing(client, "a:1", "b:1")


@on_engine
async def test_a_service_that_fails_is_withdrawn_and_comes_back(client: Client) -> None:
    is_good = False

    async def probe() -> bool:
        return is_good

    check = FunctionCheck(probe, interval=0.01, timeout=1, withdraw_after=0.05)
    async with client.register("web", "a:1", check=check) as service:
        await until_passing(client)

        async def is_withdrawn() -> bool:  # the service records it when its call is answered
            found = await client.registry.lookup(named_template("web"), 0)
            return not found.total and not service.is_registered

        await until(is_withdrawn)
        assert service.last_error == "the function has returned False"
        is_good = True
        await until_passing(client, "a:1")
        assert service.health is Health.PASSING


@on_engine
async def test_services_yields_the_present_ones_and_then_changes(client: Client) -> None:
    async with client.register("web", "a:1") as service:
        changes = client.services("web")
        first = await anext(changes)
        assert first.kind is ServiceChangeKind.JOINED
        assert first.service.endpoint == "a:1"
        async with client.register("web", "b:1", tags=["x"]), client.register("db", "c:1"):
            assert (await anext(changes)).service.tags == {"x"}
            service.update(tags=["new"])
            changed = await anext(changes)
            assert changed.kind is ServiceChangeKind.CHANGED
            assert changed.service.tags == {"new"}
            tagged = client.services("web", tag="x")
            assert (await anext(tagged)).service.endpoint == "b:1"
            await tagged.aclose()
        left = await anext(changes)
        assert (left.kind, left.service.endpoint) == (ServiceChangeKind.LEFT, "b:1")
        await changes.aclose()


@on_engine
async def test_picking_at_random_chooses_any_passing_service_and_reads_only_that(
    client: Client,
) -> None:
    registry: Any = client.registry
    registry.passing = None  # it reads all
    assert await client.pick("web", strategy="random") is None
    async with client.register("web", "a:1"), client.register("web", "b:1") as other:
        chosen = {await client.pick("web", strategy="random") for _ in range(100)}
        assert {each.endpoint for each in chosen if each} == {"a:1", "b:1"}
        await other.close()
        assert (await client.pick("web", strategy="random")).endpoint == "a:1"  # type: ignore[union-attr]


@on_engine
async def test_picking_takes_turns_and_counts_failures(client: Client) -> None:
    assert await client.pick("web") is None
    async with client.register("web", "a:1"), client.register("web", "b:1"):
        turns = [await client.pick("web") for _ in range(4)]
        assert {each.endpoint for each in turns if each} == {"a:1", "b:1"}
        assert turns[:2] == turns[2:]
        assert turns[0] is not None
        client.report_failure(turns[0])
        best = [await client.pick("web", strategy="least_recently_failed") for _ in range(2)]
        assert best == [turns[1], turns[1]]
        with pytest.raises(ValueError, match="strategy must be one of round_robin, random"):
            await client.pick("web", strategy="best")  # type: ignore[arg-type]


@on_engine
async def test_a_failure_counts_however_the_service_was_found_and_for_tags_picked_later(
    client: Client,
) -> None:
    async with (
        client.register("web", "a:1", tags=["x"]),
        client.register("web", "b:1", tags=["x"]),
    ):
        changes = client.services("web")
        first, second = sorted(
            [(await anext(changes)).service for _ in range(2)], key=lambda each: each.id
        )
        await changes.aclose()
        client.report_failure(first)
        for tag in ("x", None):
            best = await client.pick("web", tag=tag, strategy="least_recently_failed")
            assert best == second


@on_engine
async def test_arguments_are_checked_before_anything_is_sent(client: Client) -> None:
    bad_values: list[Any] = [{"ttl": 0}, {"lease": "other"}, {"tags": map(str, range(300))}]
    for wrong in bad_values:
        with pytest.raises(ValueError, match=r"\w"):
            client.register("web", "a:1", **wrong)
    bad_types: list[Any] = [{"lease": 1.5}, {"check": "tcp://a:1"}, {"tags": "x"}]
    for wrong in bad_types:
        with pytest.raises(TypeError):
            client.register("web", "a:1", **wrong)
    assert await passing(client) == set()


@asynchronous
async def test_a_lease_that_is_not_granted_in_time_raises_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_ttl: float, *, lease: int) -> None:
        await asyncio.sleep(lease and 3_600)

    async with lh.open(tmp_path, timeout=0.05) as client:
        monkeypatch.setattr(client.engine, "grant", hang)
        with pytest.raises(TimeoutError):
            await client.register("web", "a:1")
        monkeypatch.undo()


@asynchronous
async def test_a_service_that_is_closed_while_it_is_registered_again_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lh.open(tmp_path) as client, client.lease(20) as lease:
        service = await client.register("web", "a:1", lease=lease)
        under_way = asyncio.Event()
        register = client.registry.register

        async def late(*arguments: Any, **options: Any) -> Any:
            made = await register(*arguments, **options)
            under_way.set()
            await asyncio.sleep(0.05)  # the answer is late
            return made

        await client.registry.register(named_item("web", "a:1"), 30)  # replaces it
        monkeypatch.setattr(client.registry, "register", late)
        service.update(tags=["x"])
        await under_way.wait()
        await service.close()
        assert await passing(client) == set()


@on_engine
async def test_closing_the_client_ends_its_services(client: Client) -> None:
    service = await client.register("web", "a:1")
    assert service.id
    await client.close()
    assert not service.id
