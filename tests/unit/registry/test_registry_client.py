"""The registry in a client: its arguments, what it sends, and what it makes of answers."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from leasehold import ANY, FOREVER, Compacted, RemoteLandlord, RemoteLease
from leasehold.engine.time_limits import CallTimeouts
from leasehold.errors import CallFailed, CallRefused, Closed, ConnectionLost, Status, TooBusy
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.grpc.channel import Channel
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.registry.client import Registration, Registry, ServiceEvent
from leasehold.registry.codecs import service_item, service_template
from leasehold.registry.item_watch import ObservedChange, Update, changes_between, watch_items
from leasehold.registry.messages import UNDECODABLE, item_message
from leasehold.registry.remote_registrar import PATH, RemoteRegistrar
from leasehold.registry.state import (
    ALL_TRANSITIONS,
    EVERYTHING,
    Health,
    Item,
    ServiceType,
    Transition,
    attribute_set,
)
from leasehold.testing import current_host, run_virtual
from leasehold.wire import registry_pb2 as pb

ID = "00000000-0000-0000-0000-000000000001"
OTHER = "00000000-0000-0000-0000-000000000002"
WEB = service_template(types=["web"])
GRANTOR = "0000000000000007/registry"


class Calls:
    """A registrar that answers as set; its calls are recorded."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.answers: list[Any] = []
        self.landlord = RemoteLandlord("server.example:1", clock=current_host().clock)

    async def call(
        self,
        method: str,
        request: Any,
        kind: Any,
        timeout: Any = None,  # noqa: ASYNC109  as that of the class
        *,
        known: Any = None,
    ) -> Any:
        copy = type(request)()
        copy.CopyFrom(request)
        self.sent.append((method, copy))
        answer = self.answers.pop(0) if self.answers else kind()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def lease(self, grantor: str, cookie: str, ttl_ms: int, sent_at: float) -> RemoteLease:
        return RemoteLease(self.landlord, grantor, cookie, ttl_ms / 1000, sent_at)


class OneRegistry(Registry):
    """A registry without a connection."""

    def __init__(self) -> None:
        engine: Any = None
        super().__init__(engine, engine, lambda: engine, current_host().clock)
        self.calls = Calls()

    @property
    def _calls(self) -> Any:
        return self.calls


def scene(test: Callable[[OneRegistry, Calls], Any]) -> None:
    async def main() -> None:
        registry = OneRegistry()
        await test(registry, registry.calls)

    run_virtual(main)


def encoded(item_id: str = ID, **fields: Any) -> bytes:
    return item_message(service_item(id=item_id, types=["web"], **fields)).SerializeToString()


# Arguments are checked before anything is sent.


def test_a_missing_item_and_a_negative_duration_are_refused() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        with pytest.raises(TypeError, match="item must be an Item"):
            await registry.register(None)  # type: ignore[arg-type]
        for duration in (-1, -0.5, timedelta(seconds=-1), 0):
            with pytest.raises(ValueError, match="duration"):
                await registry.register(service_item(), duration)
            with pytest.raises(ValueError, match="duration"):
                await registry.notify(WEB, ALL_TRANSITIONS, print, b"", duration)
        with pytest.raises(ValueError, match="must not be given with lease"):
            await registry.register(service_item(), 3, lease=7)
        assert calls.sent == []

    scene(check)


def test_a_template_of_none_is_refused() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        none: Any = None
        for call in (
            lambda: registry.lookup(none),
            lambda: registry.lookup(none, 1),
            lambda: registry.types(none),
            lambda: registry.attribute_kinds(none),
            lambda: registry.field_values(none, 0, "f"),
            lambda: registry.notify(none, ALL_TRANSITIONS, print),
        ):
            with pytest.raises(TypeError, match="template must be a Template"):
                await call()
        with pytest.raises(TypeError, match="template must be a Template"):
            registry.watch(none)
        assert calls.sent == []

    scene(check)


def test_a_max_below_0_is_refused() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        wrong_types: list[Any] = [True, 1.5, "1"]
        with pytest.raises(ValueError, match="max must not be negative, got -1"):
            await registry.lookup(WEB, -1)
        for wrong in wrong_types:
            with pytest.raises(TypeError, match="max must be an int"):
                await registry.lookup(WEB, wrong)
        assert calls.sent == []

    scene(check)


def test_transitions_must_be_a_non_empty_set() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        for wrong in ((), Transition(0), [8], 8):
            with pytest.raises((ValueError, TypeError)):
                await registry.notify(WEB, wrong, print)  # type: ignore[arg-type]
        assert calls.sent == []

    scene(check)


@pytest.mark.parametrize("wrong", [None, 8, 3.5, "MATCH_MATCH", [None], ["x"]])
def test_transitions_of_a_wrong_type_are_refused(wrong: Any) -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        text = "transitions must be a Transition or a set of them, not "
        with pytest.raises(TypeError, match=re.escape(text + repr(wrong))):
            await registry.notify(WEB, wrong, print)
        assert calls.sent == []

    scene(check)


def test_a_max_beyond_64_bits_is_refused() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        with pytest.raises(ValueError, match=f"max must be below 2\\*\\*63, got {2**63}"):
            await registry.lookup(WEB, 2**63)
        assert calls.sent == []

    scene(check)


def test_changes_of_a_wrong_type_are_refused() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        made = await registry.register(service_item(types=["web"]))
        calls.sent.clear()
        wrong: Any
        for wrong in (None, 7, "x", attribute_set("k", {"f": 1}), {"f": 1}):
            text = re.escape(f"attributes must be a sequence of attribute sets, not {wrong!r}")
            with pytest.raises(TypeError, match=text):
                await made.add_attributes(wrong)
            with pytest.raises(TypeError, match=text):
                await made.set_attributes(wrong)
            with pytest.raises(TypeError, match="templates must be a sequence of attribute sets"):
                await made.modify_attributes(wrong, [])
            with pytest.raises(TypeError, match="updates must be a sequence of attribute sets"):
                await made.modify_attributes([], wrong)
        for wrong in ("failing", 7, None):
            text = re.escape(f"health must be a Health, such as Health.FAILING, not {wrong!r}")
            with pytest.raises(TypeError, match=text):
                await made.set_health(wrong)
            with pytest.raises(TypeError, match=text):
                service_item(types=["web"], health=wrong)
        with pytest.raises(TypeError, match="index must be an int, not 'x'"):
            await registry.field_values(WEB, "x", "f")  # type: ignore[arg-type]
        assert calls.sent == []

    scene(check)


def test_a_listener_and_a_handback_of_bytes_must_be_given() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        with pytest.raises(TypeError, match="listener must be"):
            await registry.notify(WEB, ALL_TRANSITIONS, None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="handback must be bytes"):
            await registry.notify(WEB, ALL_TRANSITIONS, EventTarget("", "m"), "x")  # type: ignore[arg-type]
        assert calls.sent == []

    scene(check)


def test_a_wrong_index_is_an_index_error_and_an_unknown_field_an_attribute_error() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        one = service_template(attributes=[attribute_set("k", {})])
        for index in (-1, 1):
            with pytest.raises(IndexError, match="got"):
                await registry.field_values(one, index, "f")
        assert calls.sent == []
        failure = as_ours(RpcError(Status.NOT_FOUND, "no set has a field 'f'"))
        failure.__cause__ = RpcError(Status.NOT_FOUND, "no set has a field 'f'")
        calls.answers.append(failure)
        with pytest.raises(AttributeError, match="no set has a field 'f'"):
            await registry.field_values(one, 0, "f")
        calls.answers.append(CallRefused("other"))
        with pytest.raises(CallRefused):
            await registry.field_values(one, 0, "f")
        calls.answers.append(pb.BrowseResponse(found=["1", '"a"', "[true]"]))
        assert await registry.field_values(one, 0, "f") == [1, "a", [True]]

    scene(check)


# Registrations.


async def registered(registry: OneRegistry, calls: Calls) -> Registration:
    calls.answers.append(
        pb.RegisterResponse(
            id=ID, registration="r", ttl_ms=30_000, grantor=GRANTOR, cookie=f"{ID}.r"
        )
    )
    return await registry.register(service_item(types=["web"]), 60)


def test_a_registration_has_the_lease_that_was_granted() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        made = await registered(registry, calls)
        assert made.id == ID
        assert made.lease is not None
        assert (made.lease.grantor, made.lease.cookie) == (GRANTOR, f"{ID}.r")
        assert made.lease.remaining == pytest.approx(30.0)
        method, request = calls.sent[0]
        assert (method, request.ttl_ms, request.lease) == ("Register", 60_000, 0)
        await registry.register(service_item())
        await registry.register(service_item(), FOREVER)
        assert [request.ttl_ms for _, request in calls.sent[1:]] == [-1, -2]

    scene(check)


def test_only_calls_that_read_are_sent_again_after_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: dict[str, bool] = {}

    async def unary(
        _: Channel, path: str, _message: bytes, *, idempotent: bool, **__: Any
    ) -> bytes:
        sent[path.removeprefix(PATH)] = idempotent
        return b""

    class Engine:
        trouble = ""

        def __init__(self) -> None:
            self.channel = Channel("server.example:1")

    async def main() -> None:
        engine: Any = Engine()
        registrar = RemoteRegistrar(engine, CallTimeouts(engine, 10.0), current_host().clock)
        for method in ("Lookup", "Browse", "Register", "Change", "Notify"):
            await registrar.call(method, pb.ChangeRequest(), pb.ChangeResponse)
        await engine.channel.close()

    monkeypatch.setattr(Channel, "unary", unary)
    run_virtual(main)
    assert sent == {
        **dict.fromkeys(("Lookup", "Browse"), True),
        **dict.fromkeys(("Register", "Change", "Notify"), False),
    }


def test_an_item_under_a_lease_of_the_client_has_no_term_of_its_own() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        calls.answers.append(
            pb.RegisterResponse(id=ID, registration="r", grantor=GRANTOR, cookie=f"{ID}.r")
        )
        made = await registry.register(service_item(types=["web"]), lease=7)
        assert made.lease is None  # it was given by its number
        assert calls.sent[0][1].lease == 7

    scene(check)


def test_changes_name_the_registration() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        made = await registered(registry, calls)
        calls.sent.clear()
        await made.add_attributes([attribute_set("k", {"f": 1})])
        await made.set_attributes([])
        await made.modify_attributes(
            [attribute_set("k", {}), attribute_set("l", {})],
            [
                attribute_set("k", {"f": 2}),
                None,
            ],
        )
        await made.set_health(Health.MAINTENANCE)
        assert {(method, sent.id, sent.registration) for method, sent in calls.sent} == {
            ("Change", ID, "r")
        }
        changes = [sent.WhichOneof("change") for _, sent in calls.sent]
        assert changes == ["add", "set", "modify", "health"]
        updates = calls.sent[2][1].modify.updates
        assert [each.HasField("update") for each in updates] == [True, False]

    scene(check)


def test_lengths_and_kinds_of_updates_must_agree() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        made = await registered(registry, calls)
        calls.sent.clear()
        with pytest.raises(ValueError, match="same length"):
            await made.modify_attributes([attribute_set("k", {})], [])
        with pytest.raises(ValueError, match="must be of that kind or one of its bases"):
            await made.modify_attributes([attribute_set("k", {})], [attribute_set("l", {})])
        assert calls.sent == []

    scene(check)


# Lookups.


def test_one_at_random_or_none() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        calls.answers += [pb.LookupResponse(items=[encoded()]), pb.LookupResponse()]
        found = await registry.lookup(WEB, stale=True)
        assert found is not None
        assert found.id == ID
        assert await registry.lookup(WEB) is None
        assert [(each.one, each.stale) for _, each in calls.sent] == [(True, True), (True, False)]

    scene(check)


def test_pages_are_read_up_to_max_at_one_revision() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        calls.answers += [
            pb.LookupResponse(items=[encoded(), UNDECODABLE], total=9, revision=5, next="x"),
            pb.LookupResponse(items=[encoded(OTHER)], total=9, revision=5, next="y"),
        ]
        found = await registry.lookup(WEB, 3)
        assert [item and item.id for item in found.items] == [ID, None, OTHER]
        assert (found.total, found.revision) == (9, 5)
        assert [(each.limit, each.after, each.revision) for _, each in calls.sent] == [
            (3, "", 0),
            (1, "x", 5),
        ]

    scene(check)


def test_a_max_of_0_gives_the_total_only() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        calls.answers.append(pb.LookupResponse(total=9, revision=5))
        assert await registry.lookup(WEB, 0) == ([], 9, 5)
        assert calls.sent[0][1].limit == 0

    scene(check)


def test_a_lookup_begins_again_if_its_revision_was_compacted() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        calls.answers += [
            pb.LookupResponse(items=[encoded()], total=2, revision=5, next="x"),
            Compacted(5, 6),
            pb.LookupResponse(items=[encoded(OTHER)], total=1, revision=7),
        ]
        found = await registry.lookup(WEB, 3)
        assert (len(found.items), found.total, found.revision) == (1, 1, 7)
        calls.answers += [Compacted(5, 6)] * 3
        with pytest.raises(Compacted):
            await registry.lookup(WEB, 3)

    scene(check)


# Events.


def event(payload: pb.ItemEvent, service: str = GRANTOR) -> RemoteEvent:
    return RemoteEvent(service, "e", 1, 4, b"hand", payload.SerializeToString())


def test_an_event_has_a_transition_an_id_and_the_new_state() -> None:
    async def check(registry: OneRegistry, _: Calls) -> None:
        joined = registry.event(
            event(pb.ItemEvent(transition=pb.NOMATCH_MATCH, id=ID, item=encoded()))
        )
        assert isinstance(joined, ServiceEvent)
        assert joined.transition is Transition.NOMATCH_MATCH
        assert (joined.source, joined.number, joined.handback, joined.id) == ("e", 4, b"hand", ID)
        assert joined.item is not None
        assert not joined.is_resync
        gone = registry.event(event(pb.ItemEvent(transition=pb.MATCH_NOMATCH, id=ID)))
        assert gone.item is None
        resync = registry.event(event(pb.ItemEvent()))
        assert resync.is_resync
        assert (resync.id, resync.item) == ("", None)
        with pytest.raises(ValueError, match="event must come from the registry"):
            registry.event(event(pb.ItemEvent(), "0/renewal"))

    scene(check)


def test_notify_returns_source_kind_lease_and_number() -> None:
    async def check(registry: OneRegistry, calls: Calls) -> None:
        calls.answers.append(
            pb.RequestEventsResponse(id="e", ttl_ms=60_000, grantor=GRANTOR, number=0)
        )
        wanted = [Transition.MATCH_MATCH, Transition.MATCH_NOMATCH]
        made = await registry.notify(WEB, wanted, EventTarget("", "m"), b"hand", ANY)
        assert (made.source, made.kind, made.number) == ("e", 1, 0)
        assert (made.lease.grantor, made.lease.cookie) == (GRANTOR, "e")
        method, request = calls.sent[0]
        assert (method, request.transitions, request.handback) == ("Notify", 5, b"hand")
        assert (request.listener.id, request.ttl_ms) == ("m", -1)

    scene(check)


# Watches.


def item(item_id: str, endpoint: str = "", health: Health = Health.PASSING) -> Item:
    return Item(item_id, (ServiceType("web"),), endpoint=endpoint, health=health)


def test_snapshots_are_compared() -> None:
    before = {"a": item("a"), "b": item("b"), "c": item("c")}
    after = {"b": item("b", "new"), "c": item("c"), "d": item("d")}
    assert changes_between(before, after) == [
        ObservedChange(Transition.MATCH_NOMATCH, "a", None, item("a")),
        ObservedChange(Transition.MATCH_MATCH, "b", item("b", "new"), item("b")),
        ObservedChange(Transition.NOMATCH_MATCH, "d", item("d"), None),
    ]


def watched(*sources: Sequence[Update | Exception], passing: bool = False) -> list[str]:
    """Return what a watch yields whose sources send this, one after the other."""
    found: list[str] = []
    left = list(sources)

    async def begin() -> AsyncGenerator[Update, None]:
        for each in left.pop(0) if left else [Closed("no more")]:
            if isinstance(each, Exception):
                raise each
            yield each

    async def main() -> None:
        with suppress(Closed):
            async for change in watch_items(begin, EVERYTHING, passing):
                found.append(f"{change.transition.name} {change.id}")  # noqa: PERF401  it raises

    run_virtual(main)
    return found


LOST = ConnectionLost("lost")


def test_a_watch_yields_the_present_items_and_then_changes() -> None:
    assert watched(
        [Update({"a": item("a")}), Update(None, [("b", item("b")), ("a", None), ("x", None)])]
    ) == ["NOMATCH_MATCH a", "NOMATCH_MATCH b", "MATCH_NOMATCH a"]


def test_a_watch_survives_lost_connections_by_comparing() -> None:
    assert watched(
        [Update({"a": item("a"), "b": item("b")}), LOST],
        [LOST],
        [CallFailed("loading"), LOST],
        [TooBusy("too slow")],
        [Update({"b": item("b", "new"), "c": item("c")})],
    ) == [
        *("NOMATCH_MATCH a", "NOMATCH_MATCH b"),
        *("MATCH_NOMATCH a", "MATCH_MATCH b", "NOMATCH_MATCH c"),
    ]


def test_with_passing_an_item_that_fails_has_left() -> None:
    failing = item("a", health=Health.FAILING)
    updates = [
        Update({"a": item("a")}),
        Update(None, [("a", failing)]),
        Update(None, [("a", item("a"))]),
    ]
    assert watched(updates, passing=True) == [
        *("NOMATCH_MATCH a", "MATCH_NOMATCH a", "NOMATCH_MATCH a"),
    ]
    assert watched(updates) == ["NOMATCH_MATCH a", "MATCH_MATCH a", "MATCH_MATCH a"]


def test_a_definite_error_ends_a_watch() -> None:
    assert watched([Update({"a": item("a")}), Closed("closed")], [Update({})]) == [
        "NOMATCH_MATCH a"
    ]
