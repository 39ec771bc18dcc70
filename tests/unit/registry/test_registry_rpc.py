"""The registry on the wire: arguments, answers and watches, in virtual time."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from leasehold.errors import PermissionDenied, Status, TooBusy, UnknownLease
from leasehold.events.listeners import CallbackPolicy
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import ServerStream
from leasehold.registry import rpc as rpc_module
from leasehold.registry import watch_streams
from leasehold.registry.messages import item_message, template_message
from leasehold.registry.own_services import registrar_id
from leasehold.registry.rpc import RegistryRpc
from leasehold.registry.state import EVERYTHING, Item, Transition
from leasehold.services.forwarding import Forwarder
from leasehold.wire import registry_pb2 as pb
from leasehold.wire.services_pb2 import ListenerTarget
from tests.support.registry_stage import WEB, A, B, C, RegistryStage, item, web

CONTEXT = cast(CallContext, None)
LISTENER = ListenerTarget(endpoint="10.0.0.1:7000", id="l")


class Wire:
    """Calls the methods of the registry, without a network."""

    def __init__(self, stage: RegistryStage) -> None:
        self.stage = stage
        forwarder = Forwarder(stage.shards)
        forwarder.client_address = lambda context: "10.0.0.1:5000"  # type: ignore[method-assign]
        self.rpc = RegistryRpc(
            stage.service, stage.events, forwarder, CallbackPolicy(), lambda: ["here:1"]
        )

    def ask(self, name: str, request: Any) -> bytes:
        answer = self.stage.run(getattr(self.rpc, name), request.SerializeToString(), CONTEXT)
        assert isinstance(answer, bytes)
        return answer

    def register(self, registered: Item, **fields: Any) -> pb.RegisterResponse:
        request = pb.RegisterRequest(item=item_message(registered), **{"ttl_ms": 30_000, **fields})
        return pb.RegisterResponse.FromString(self.ask("register", request))

    def lookup(self, **fields: Any) -> pb.LookupResponse:
        request = pb.LookupRequest(**{"template": template_message(WEB), "limit": 100, **fields})
        return pb.LookupResponse.FromString(self.ask("lookup", request))

    def found(self, **fields: Any) -> list[str]:
        return [pb.ServiceItem.FromString(data).id for data in self.lookup(**fields).items]

    def change(self, registered: pb.RegisterResponse, **fields: Any) -> None:
        given = {"id": registered.id, "registration": registered.registration, **fields}
        self.ask("change", pb.ChangeRequest(**given))

    def browse(self, **fields: Any) -> list[str]:
        request = pb.BrowseRequest(**{"template": pb.ItemTemplate(), **fields})
        return list(pb.BrowseResponse.FromString(self.ask("browse", request)).found)

    def notify(self, **fields: Any) -> pb.RequestEventsResponse:
        given = {
            "template": template_message(WEB),
            "transitions": 7,
            "listener": LISTENER,
            "ttl_ms": -1,
            **fields,
        }
        request = pb.RequestEventsRequest(**{key: each for key, each in given.items() if each})
        return pb.RequestEventsResponse.FromString(self.ask("notify", request))

    def watch(self, **fields: Any) -> "FakeStream":
        stream = FakeStream()
        opened = self.rpc.watches.method().open
        request = pb.WatchItemsRequest(**{"template": template_message(WEB), **fields})
        self.stage.host.call(lambda: stream.begin(opened, request.SerializeToString()))
        self.stage.pass_time()
        return stream


class FakeStream:
    """A stream of which a test reads messages, or does not."""

    def __init__(self) -> None:
        self.sent: list[pb.WatchItemsResponse] = []
        self.room = 1_000
        self.error: RpcError | None = None
        self.handler: Any = None

    def begin(self, opened: Any, message: bytes) -> None:
        self.handler = opened(cast(ServerStream, self))
        self.handler.message_received(message)
        self.handler.ended()

    def send_message(self, message: bytes, position: int) -> None:
        assert position == 0
        assert self.room, "there is no room"
        self.room -= 1
        self.sent.append(pb.WatchItemsResponse.FromString(message))

    @property
    def has_own_room(self) -> bool:
        return self.room > 0

    def end(self, error: RpcError | None = None) -> None:
        self.error = error
        self.handler.gone()

    def fail(self, error: BaseException) -> None:
        self.error = RpcError(Status.UNAVAILABLE, str(error))
        self.handler.gone()

    def flush_soon(self) -> None:
        return

    @property
    def items(self) -> list[str]:
        return [pb.ServiceItem.FromString(data).id for each in self.sent for data in each.items]

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [
            (Transition(change.transition).name or "", change.id)
            for each in self.sent
            for change in each.changes
        ]


@pytest.fixture
def wire() -> Iterator[Wire]:
    with RegistryStage() as stage:
        yield Wire(stage)


def test_a_registrar_describes_itself_and_writes_nothing(wire: Wire) -> None:
    info = pb.RegistrarInfo.FromString(wire.ask("describe", pb.DescribeRequest()))
    cluster = wire.stage.engine.cluster_id
    assert (info.id, info.cluster) == (registrar_id(cluster), f"{cluster:016x}")
    assert (list(info.groups), info.groups_number) == ([], 0)
    assert list(info.endpoints) == ["here:1"]
    assert wire.stage.revision == 1
    assert "watch" not in wire.stage.faulty.calls
    wire.stage.run(wire.stage.service.registrar.set, ["lab"])
    info = pb.RegistrarInfo.FromString(wire.ask("describe", pb.DescribeRequest()))
    assert (list(info.groups), info.groups_number) == (["lab"], 1)


def test_a_registration_has_the_grantor_and_the_cookie_of_its_lease(wire: Wire) -> None:
    answer = wire.register(web(A))
    assert answer.grantor == wire.stage.leases.grantor
    assert answer.cookie == f"{A}.{answer.registration}"
    assert (answer.id, answer.ttl_ms) == (A, 30_000)
    assert wire.stage.renew(answer.cookie, 30.0) == 30.0


def test_a_registration_under_a_lease_has_no_term_of_its_own(wire: Wire) -> None:
    lease = wire.stage.run(wire.stage.engine.grant, 20.0).id
    answer = wire.register(web(A), lease=lease, ttl_ms=0)
    assert answer.ttl_ms == 0
    assert wire.stage.renew(answer.cookie, 0.0) == 0.0


@pytest.mark.parametrize("ttl_ms", [0, -3, -(2**63)])
def test_a_negative_duration_other_than_any_is_refused(wire: Wire, ttl_ms: int) -> None:
    with pytest.raises(ValueError, match="ttl_ms must be at least 1"):
        wire.register(web(A), ttl_ms=ttl_ms)
    with pytest.raises(ValueError, match="ttl_ms must be at least 1"):
        wire.notify(ttl_ms=ttl_ms)


def test_a_missing_item_is_refused(wire: Wire) -> None:
    with pytest.raises(ValueError, match="item must be given"):
        wire.ask("register", pb.RegisterRequest(ttl_ms=1000))


def test_a_negative_lease_is_refused(wire: Wire) -> None:
    with pytest.raises(ValueError, match="lease must be"):
        wire.register(web(A), lease=-1)


def test_more_names_than_fit_into_one_answer_are_refused(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_module, "MAX_FOUND", 2)
    wire.register(item(A, "wa", "wb"))
    assert wire.browse(prefix="w") == ["wa", "wb"]
    wire.register(item(B, "wc"))
    with pytest.raises(ValueError, match="3 names or values are too many for one answer"):
        wire.browse(prefix="w")


@pytest.mark.parametrize("method", ["lookup", "browse", "notify"])
def test_a_template_of_none_is_refused(wire: Wire, method: str) -> None:
    with pytest.raises(ValueError, match="template must be given"):
        getattr(wire, method)(template=None)


def test_lookups_give_items_totals_pages_and_one(wire: Wire) -> None:
    for each in (B, A, C):
        wire.register(web(each))
    assert wire.found() == [A, B, C]
    first = wire.lookup(limit=2)
    assert (len(first.items), first.total) == (2, 3)
    assert wire.found(after=first.next, revision=first.revision) == [C]
    one = wire.lookup(one=True)
    assert (len(one.items), one.total) == (1, 3)
    assert wire.lookup(limit=0).total == 3
    assert wire.found(stale=True) == [A, B, C]


def test_changes_of_attributes_and_of_health(wire: Wire) -> None:
    answer = wire.register(web(A, area="north"))
    north = pb.AttributeSet(kind="about", fields={"area": '"north"'})
    south = pb.AttributeSet(kind="about", fields={"area": '"south"'})

    def change(**fields: Any) -> pb.ServiceItem:
        wire.change(answer, **fields)
        return pb.ServiceItem.FromString(wire.lookup().items[0])

    assert list(change(add=pb.AttributeSets(sets=[south, north])).attributes) == [north, south]
    updates = [pb.AttributeUpdate(template=south), pb.AttributeUpdate(template=north, update=south)]
    assert list(change(modify=pb.AttributeUpdates(updates=updates)).attributes) == [south]
    assert list(change(set=pb.AttributeSets()).attributes) == []
    assert change(health=pb.MAINTENANCE).health == pb.MAINTENANCE
    assert wire.found(passing=True) == []


def test_a_change_without_a_change_is_refused(wire: Wire) -> None:
    answer = wire.register(web(A))
    with pytest.raises(ValueError, match="change must be given"):
        wire.change(answer)
    with pytest.raises(ValueError, match="health must be"):
        wire.change(answer, health=7)


def test_an_update_of_another_kind_is_refused_before_the_item_is_looked_for(wire: Wire) -> None:
    update = pb.AttributeUpdate(
        template=pb.AttributeSet(kind="about"), update=pb.AttributeSet(kind="other")
    )
    request = pb.ChangeRequest(id=A, registration="x", modify=pb.AttributeUpdates(updates=[update]))
    with pytest.raises(ValueError, match="must be of that kind or one of its bases"):
        wire.ask("change", request)


def test_a_change_of_an_unknown_registration_is_unknown_lease(wire: Wire) -> None:
    wire.register(web(A))
    with pytest.raises(UnknownLease):
        wire.ask("change", pb.ChangeRequest(id=A, registration="x", health=pb.FAILING))


def test_browsing_gives_types_kinds_and_values(wire: Wire) -> None:
    wire.register(item(A, "web", "db", area="north"))
    wire.register(web(B, area="south"))
    area = pb.ItemTemplate(attributes=[pb.AttributeSet(kind="about")])
    assert wire.browse(prefix="w") == ["web"]
    assert wire.browse(template=template_message(WEB)) == ["db"]
    assert wire.browse(subject=pb.BrowseRequest.ATTRIBUTE_KINDS) == ["about"]
    values = {"template": area, "subject": pb.BrowseRequest.FIELD_VALUES}
    assert wire.browse(**values, field="area") == ['"north"', '"south"']
    with pytest.raises(RpcError) as error:
        wire.browse(**values, index=1, field="area")
    assert error.value.status is Status.OUT_OF_RANGE
    with pytest.raises(RpcError) as error:
        wire.browse(**values, field="floor")
    assert error.value.status is Status.NOT_FOUND
    with pytest.raises(ValueError, match="subject must be"):
        wire.browse(subject=cast(Any, 9))


# Events.


def test_a_registration_for_events_has_a_lease_of_the_same_grantor(wire: Wire) -> None:
    answer = wire.notify()
    assert (answer.ttl_ms, answer.number) == (60_000, 0)
    assert answer.grantor == wire.stage.leases.grantor
    wire.register(web(A))
    assert wire.stage.told() == [(1, "NOMATCH_MATCH", A)]
    assert wire.stage.renew(answer.id, 100.0) == 100.0


@pytest.mark.parametrize("listener", [None, ListenerTarget(endpoint="10.0.0.1:7000")])
def test_a_registration_without_a_listener_is_refused(wire: Wire, listener: Any) -> None:
    with pytest.raises(ValueError, match="listener must have an id"):
        wire.notify(listener=listener)


@pytest.mark.parametrize("transitions", [None, 8, -1])
def test_a_registration_without_transitions_is_refused(wire: Wire, transitions: Any) -> None:
    with pytest.raises(ValueError, match="transitions must be"):
        wire.notify(transitions=transitions)


def test_a_listener_at_another_address_is_refused(wire: Wire) -> None:
    with pytest.raises(PermissionDenied):
        wire.notify(listener=ListenerTarget(endpoint="10.0.0.2:7000", id="l"))


# Watches.


def test_a_watch_sends_the_items_and_then_their_changes(wire: Wire) -> None:
    wire.register(web(B))
    wire.register(item(C, "other"))
    stream = wire.watch()
    assert stream.items == [B]
    assert stream.sent[0].is_complete
    answer = wire.register(web(A))
    wire.register(web(B, "two"))
    wire.stage.renew(answer.cookie, 0.0)
    wire.stage.pass_time()
    assert stream.changes == [("NOMATCH_MATCH", A), ("MATCH_MATCH", B), ("MATCH_NOMATCH", A)]
    assert stream.sent[-1].revision


def test_a_watch_of_nothing_is_complete_immediately(wire: Wire) -> None:
    stream = wire.watch()
    assert [(each.is_complete, list(each.items)) for each in stream.sent] == [(True, [])]


def test_a_watch_of_passing_items_does_not_send_others(wire: Wire) -> None:
    answer = wire.register(web(A))
    stream = wire.watch(passing=True)
    for health in (pb.FAILING, pb.MAINTENANCE, pb.PASSING):
        wire.change(answer, health=health)
    wire.stage.pass_time()
    assert stream.items == [A]
    assert stream.changes == [("MATCH_NOMATCH", A), ("NOMATCH_MATCH", A)]


def test_a_watch_sends_items_in_several_messages(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "MESSAGE_ITEMS", 2)
    for each in (A, B, C):
        wire.register(web(each))
    stream = wire.watch()
    assert [len(each.items) for each in stream.sent] == [2, 1]
    assert [each.is_complete for each in stream.sent] == [False, True]


def test_a_watch_that_is_not_read_waits_and_loses_nothing(wire: Wire) -> None:
    stream = wire.watch()
    stream.room = 0
    for each in (A, B, C):
        wire.register(web(each))
    wire.stage.pass_time()
    assert stream.changes == []
    stream.room = 10
    wire.stage.host.call(stream.handler.relieved)
    wire.stage.pass_time()
    assert [item_id for _, item_id in stream.changes] == [A, B, C]


def test_a_watch_that_overflows_is_ended_with_an_error(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "MAX_CHANGES", 2)
    slow, fast = wire.watch(), wire.watch()
    slow.room = 0
    for _ in range(5):
        wire.register(web())
    wire.stage.pass_time()
    assert slow.error is not None
    assert slow.error.status is Status.RESOURCE_EXHAUSTED
    assert len(fast.changes) == 5
    assert wire.rpc.watches.count == 1


def test_watches_beyond_the_limit_are_refused_until_another_ends(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "MAX_WATCHES", 2)
    first, _ = wire.watch(), wire.watch()
    with pytest.raises(TooBusy, match="2 watches of items"):
        wire.watch()
    assert wire.rpc.watches.count == 2
    wire.stage.host.call(first.handler.gone)
    assert wire.watch().error is None


def test_other_work_runs_between_the_searches_of_watches_that_begin_together(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.register(web(A))
    wire.watch()
    order: list[str] = []
    search = watch_streams.ItemWatchStream._search

    async def searched(stream: watch_streams.ItemWatchStream, *, passing: bool) -> None:
        order.append("search")
        asyncio.get_running_loop().call_soon(order.append, "other work")
        await search(stream, passing=passing)

    monkeypatch.setattr(watch_streams.ItemWatchStream, "_search", searched)
    streams = [FakeStream() for _ in range(5)]
    opened = wire.rpc.watches.method().open
    request = pb.WatchItemsRequest(template=template_message(WEB)).SerializeToString()

    def begin_all() -> None:
        for stream in streams:
            stream.begin(opened, request)

    wire.stage.host.call(begin_all)
    wire.stage.pass_time()
    assert order == ["search", "other work"] * 5
    assert [stream.items for stream in streams] == [[A]] * 5


def test_a_watch_that_is_gone_is_forgotten(wire: Wire) -> None:
    stream = wire.watch()
    assert wire.rpc.watches.count == 1
    wire.stage.host.call(stream.handler.gone)
    wire.register(web(A))
    wire.stage.pass_time()
    assert stream.changes == []
    assert wire.rpc.watches.count == 0


def test_a_watch_without_a_template_or_with_two_requests_is_refused(wire: Wire) -> None:
    with pytest.raises(RpcError, match="template must be given"):
        wire.watch(template=None)
    stream = wire.watch(template=template_message(EVERYTHING))
    with pytest.raises(RpcError, match="have one request, got two"):
        stream.handler.message_received(b"")


def test_a_watch_while_the_index_is_loading_is_unavailable(wire: Wire) -> None:
    wire.stage.faulty.is_cut_off = True
    stream = wire.watch()
    wire.stage.pass_time(5.0)
    assert stream.error is not None
    assert stream.error.status is Status.UNAVAILABLE
    assert wire.rpc.watches.count == 0
