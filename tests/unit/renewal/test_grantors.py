"""`Grantors`: which leases may be renewed, where, in which batches, and what never is sent."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    CallFailed,
    CallRefused,
    Closed,
    ConnectionLost,
    HistoryLost,
    Lease,
    LeaseDenied,
    NoticeKind,
    PermissionDenied,
    RenewalManager,
    RenewalNotice,
    TooBusy,
    UnknownLease,
    is_definite,
)
from leasehold.basics.endpoint_list import EndpointList
from leasehold.engine.values import Renewed
from leasehold.renewal import grantor_connections
from leasehold.renewal.grantor_connections import IDLE_S, MAX_CONNECTIONS
from leasehold.renewal.grantors import (
    ONE_BY_ONE,
    Credentials,
    GrantorLease,
    Grantors,
    MemberLease,
    UndecodableLease,
)
from leasehold.renewal.references import GrantorKind, LeaseReference
from leasehold.services.withdrawn_leases import COMPOSED
from leasehold.testing import current_host, run_virtual

OWN = f"{7:016x}"
OTHER = f"{8:016x}"
HERE = "landlord.example:1"


class Engine:
    """An engine that renews everything for 30 s, and notes what it is asked for."""

    cluster_id = 7

    def __init__(self) -> None:
        self.renewed: list[list[int]] = []
        self.revoked: list[int] = []
        self.failures: dict[int, Exception] = {}

    async def renew_all(self, leases: Any) -> Renewed:
        self.renewed.append(list(leases))
        failures = {each: self.failures[each] for each in leases if each in self.failures}
        return Renewed({each: 30.0 for each in leases if each not in failures}, failures)

    async def revoke(self, lease: int) -> int:
        self.revoked.append(lease)
        return 1


class Landlords:
    """All landlords of a test: answers by endpoint, and a record of the batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[tuple[str, ...], list[Any]]] = []
        self.cancelled: list[Any] = []
        self.opened: list[tuple[str, ...]] = []
        self.tls: list[Any] = []
        self.closed: list[tuple[str, ...]] = []
        self.answer: Callable[[Any], Any] = lambda lease: 20.0
        self.fails: Callable[[Sequence[Any]], Exception | None] = lambda wants: None
        self.connecting: Callable[[], Awaitable[None]] | None = None
        self.takes_s = 0.0
        self.flying = 0
        self.most = 0

    def make(self, endpoints: tuple[str, ...], *, tls: Any, clock: Any) -> "FakeLandlord":
        del clock
        self.opened.append(endpoints)
        self.tls.append(tls)
        return FakeLandlord(self, endpoints)


class FakeLandlord:
    def __init__(self, all_of_them: Landlords, endpoints: tuple[str, ...]) -> None:
        self._all = all_of_them
        self._endpoints = endpoints

    async def renew_all(self, wants: Any, prepare: Callable[[], Awaitable[None]]) -> list[Any]:
        if self._all.connecting is not None:
            await self._all.connecting()
            await prepare()
        self._all.batches.append((self._endpoints, [(each.cookie, d) for each, d in wants]))
        self._all.flying += 1
        self._all.most = max(self._all.most, self._all.flying)
        try:
            await asyncio.sleep(self._all.takes_s)
        finally:
            self._all.flying -= 1
        error = self._all.fails(wants)
        if error is not None:
            raise error
        return [self._all.answer(lease) for lease, _ in wants]

    async def cancel_all(self, leases: Any) -> list[Any]:
        self._all.cancelled += [each.cookie for each in leases]
        return [0.0] * len(leases)

    async def close(self) -> None:
        self._all.closed.append(self._endpoints)


@pytest.fixture
def landlords(monkeypatch: pytest.MonkeyPatch) -> Landlords:
    found = Landlords()
    monkeypatch.setattr(grantor_connections, "RemoteLandlord", found.make)
    return found


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        async def scene() -> None:
            await test(*args, **fixtures)

        run_virtual(scene)

    return run


def make(engine: Any = None, **options: Any) -> Grantors:
    options.setdefault("allowed", EndpointList(["landlord.example", "other.example:2"]))
    own: Any = engine or Engine()
    return Grantors(own, clock=current_host().clock, **options)


def reference(cookie: Any = "c", *endpoints: str, grantor: str = "desks") -> LeaseReference:
    return LeaseReference(grantor, cookie, GrantorKind.LEASEHOLD, endpoints or (HERE,))


def member(
    grantors: Grantors,
    which: LeaseReference,
    remaining: Any = 10.0,
    term: Any = 20.0,
    *,
    set_id: str = "s",
    may_send: Callable[[], object] = lambda: None,
) -> MemberLease:
    made = grantors.lease(which.encode(), remaining, term, set_id=set_id, may_send=may_send)
    assert isinstance(made, MemberLease)
    return made


# The operator's list.


@in_virtual_time
async def test_by_default_only_leases_of_this_cluster_may_be_renewed() -> None:
    grantors = Grantors(Engine(), clock=current_host().clock)  # type: ignore[arg-type]
    grantors.check(LeaseReference(OWN, 1))
    grantors.check(LeaseReference(f"{OWN}/mailboxes", "m"))
    with pytest.raises(PermissionDenied, match=r"landlord\.example:1.*--renew-at"):
        grantors.check(reference())


@in_virtual_time
async def test_every_endpoint_of_a_reference_must_be_on_the_list() -> None:
    grantors = make()
    grantors.check(reference("c", HERE, "other.example:2"))
    with pytest.raises(PermissionDenied, match=r"other\.example:3"):
        grantors.check(reference("c", HERE, "other.example:3"))


@in_virtual_time
async def test_a_refusal_is_definite_and_has_the_status_of_grpc() -> None:
    with pytest.raises(PermissionDenied) as caught:
        make().check(reference("c", "evil.example:1"))
    assert caught.value.status.name == "PERMISSION_DENIED"
    assert caught.value.not_executed
    assert is_definite(caught.value)


@in_virtual_time
async def test_a_lease_of_another_cluster_needs_endpoints() -> None:
    with pytest.raises(ValueError, match="must have endpoints"):
        make().check(LeaseReference(OTHER, 1, GrantorKind.ETCD))


@in_virtual_time
async def test_a_lease_of_a_cluster_has_a_number() -> None:
    for grantor, kind in ((OWN, GrantorKind.LEASEHOLD), (OTHER, GrantorKind.ETCD)):
        with pytest.raises(ValueError, match="must have a number"):
            make().check(LeaseReference(grantor, "x", kind, (HERE,)))


@in_virtual_time
async def test_a_grantor_that_only_resembles_this_cluster_is_not_this_cluster() -> None:
    grantors = make()
    for name in (f"x{OWN}", f"{OWN} ", f"{OWN}mailboxes", f"/{OWN}", OWN.lstrip("0")):
        assert not grantors.is_own(LeaseReference(name, 1))
        with pytest.raises(ValueError, match="must have endpoints"):
            grantors.check(LeaseReference(name, 1))


# Credentials.


def entry(*endpoints: str, users: frozenset[str] | None = None) -> Credentials:
    return Credentials(EndpointList(endpoints), users=users)


@in_virtual_time
async def test_credentials_must_be_for_the_endpoint_and_the_user() -> None:
    grantors = make(
        credentials={
            "office": entry("landlord.example"),
            "other": entry("other.example"),
            "annas": entry("landlord.example", users=frozenset({"anna"})),
        }
    )

    def named(name: str) -> LeaseReference:
        return LeaseReference("desks", "c", GrantorKind.LEASEHOLD, (HERE,), name)

    grantors.check(named("office"))
    grantors.check(named("annas"), "anna")
    for name, user in (("other", None), ("missing", None), ("annas", None), ("annas", "ben")):
        with pytest.raises(PermissionDenied, match=name):
            grantors.check(named(name), user)


@in_virtual_time
async def test_credentials_need_an_endpoint_with_tls() -> None:
    grantors = make(credentials={"office": entry("*")})
    for scheme in ("", "https://"):
        endpoints = (f"{scheme}{HERE}",)
        grantors.check(LeaseReference("d", "c", GrantorKind.LEASEHOLD, endpoints, "office"))
    plain = LeaseReference("d", "c", GrantorKind.LEASEHOLD, (f"http://{HERE}",), "office")
    with pytest.raises(ValueError, match="has no TLS"):
        grantors.check(plain)
    assert isinstance(grantors.lease(plain.encode(), 1.0, set_id="s"), UndecodableLease)


@in_virtual_time
async def test_a_stored_reference_with_missing_credentials_counts_as_undecodable(
    landlords: Landlords,
) -> None:
    stored = LeaseReference("desks", "c", GrantorKind.LEASEHOLD, (HERE,), "gone").encode()
    lease = make().lease(stored, 10.0, 20.0, set_id="s")
    assert isinstance(lease, UndecodableLease)
    assert lease.data == stored
    with pytest.raises(CallFailed, match="gone") as caught:
        await lease.renew()
    assert not is_definite(caught.value)
    assert lease.remaining == 10.0
    assert landlords.opened == []


@pytest.mark.parametrize("stored", [b"\xff", b"", reference("c", "evil.example:1").encode()])
def test_a_stored_reference_that_cannot_be_used_fails_indefinitely(stored: bytes) -> None:
    async def scene() -> None:
        lease = make().lease(stored, 10.0, set_id="s")
        assert isinstance(lease, UndecodableLease)
        with pytest.raises(CallFailed, match="cannot be used on this server"):
            await lease.renew()
        assert lease != make().lease(stored, 10.0, set_id="s")

    run_virtual(scene)


@in_virtual_time
async def test_an_undecodable_member_leaves_at_its_end_with_the_last_error() -> None:
    notices: list[RenewalNotice] = []
    clock = current_host().clock
    async with RenewalManager(clock=clock) as manager:
        lease = make().lease(b"\xff", 10.0, set_id="s")
        manager.renew_until(lease, FOREVER, FOREVER, notices.append)
        await asyncio.sleep(9.9)
        assert not notices
        await asyncio.sleep(0.2)
    assert [(each.lease, each.kind) for each in notices] == [(lease, NoticeKind.FAILED)]
    assert isinstance(notices[0].error, CallFailed)


@in_virtual_time
async def test_the_tls_context_of_the_credentials_is_used(landlords: Landlords) -> None:
    office = entry("landlord.example")
    grantors = make(credentials={"office": office})
    which = LeaseReference("desks", "c", GrantorKind.LEASEHOLD, (HERE,), "office")
    await member(grantors, which).renew()
    await member(grantors, reference()).renew()
    assert landlords.tls == [office.tls, None]


# Batches.


@in_virtual_time
async def test_leases_share_a_batch_if_endpoint_credential_and_grantor_are_the_same() -> None:
    grantors = make(credentials={"office": entry("*")})
    one = member(grantors, reference("a"), set_id="1")
    assert one.can_batch(member(grantors, reference("b"), set_id="2"))
    assert one.can_batch(member(grantors, reference("b", "LANDLORD.example.:1")))
    assert not one.can_batch(member(grantors, reference("b", "other.example:2")))
    assert not one.can_batch(member(grantors, reference("b", grantor="chairs")))
    with_credentials = LeaseReference("desks", "b", GrantorKind.LEASEHOLD, (HERE,), "office")
    assert not one.can_batch(member(grantors, with_credentials))
    assert one.call_limit_key == member(grantors, reference("b", grantor="chairs")).call_limit_key


@in_virtual_time
async def test_with_isolate_sets_leases_of_different_sets_share_no_batch() -> None:
    grantors = make(isolate_sets=True)
    one = member(grantors, reference("a"), set_id="1")
    assert one.can_batch(member(grantors, reference("b"), set_id="1"))
    assert not one.can_batch(member(grantors, reference("b"), set_id="2"))


@in_virtual_time
async def test_a_lease_in_two_sets_is_two_members(landlords: Landlords) -> None:
    grantors = make()
    one, other = (member(grantors, reference("a"), set_id=each) for each in "12")
    assert one != other
    clock = current_host().clock
    async with RenewalManager(clock=clock) as manager:
        for each in (one, other):
            manager.renew_until(each, FOREVER)
        assert len(manager) == 2
        await asyncio.sleep(9.5)
        assert len(manager) == 2
    (batch,) = landlords.batches
    assert batch == ((HERE,), [("a", FOREVER), ("a", FOREVER)])


@in_virtual_time
async def test_leases_of_the_own_engine_are_renewed_there_in_one_call() -> None:
    engine = Engine()
    grantors = make(engine)
    engine.failures[2] = UnknownLease(2)
    leases = [member(grantors, LeaseReference(OWN, each)) for each in (1, 2, 1)]
    outcomes = await leases[0].ask_renew_all([(each, 5.0) for each in leases])
    assert engine.renewed == [[1, 2]]
    assert outcomes[0] == outcomes[2] == 30.0
    assert isinstance(outcomes[1], UnknownLease)


@in_virtual_time
async def test_a_shorter_request_does_not_shorten_a_lease_that_gets_full_terms() -> None:
    lease = member(make(), LeaseReference(OWN, 1), 20.0, 20.0)
    send = lease.send(1.0)
    assert lease.remaining == 20.0
    lease.settle(send, ConnectionLost("gone"))
    assert lease.remaining == 20.0


@in_virtual_time
async def test_leases_of_services_of_this_cluster_are_renewed_by_the_owner() -> None:
    seen: list[Any] = []

    async def renew_own(grantor: str, wants: Any, _check: Any) -> Any:
        seen.append((grantor, list(wants)))
        return [40.0] * len(wants)

    grantors = make(renew_own=renew_own)
    lease = member(grantors, LeaseReference(f"{OWN}/mailboxes", "m"))
    assert await lease.renew(ANY) == 40.0
    assert seen == [(f"{OWN}/mailboxes", [("m", ANY)])]


# What must not be sent.


@in_virtual_time
async def test_a_member_that_may_not_be_sent_is_left_out_and_gets_the_error(
    landlords: Landlords,
) -> None:
    grantors = make()
    ended = RuntimeError("the set has ended")

    def refuse() -> None:
        raise ended

    live, over = member(grantors, reference("a")), member(grantors, reference("b"), may_send=refuse)
    outcomes = await live.ask_renew_all([(over, 5.0), (live, 5.0)])
    assert landlords.batches == [((HERE,), [("a", 5.0)])]
    assert list(outcomes) == [ended, 20.0]
    with pytest.raises(RuntimeError, match="the set has ended"):
        await over.renew(5.0)
    assert len(landlords.batches) == 1


@in_virtual_time
async def test_a_set_that_ends_while_the_connection_is_made_is_left_out(
    landlords: Landlords,
) -> None:
    grantors = make()
    over: set[str] = set()
    waits = 0

    def check(name: str) -> Callable[[], None]:
        def raise_if_over() -> None:
            if name in over:
                raise RuntimeError(f"{name} is over")

        return raise_if_over

    async def connect() -> None:
        nonlocal waits
        waits += 1
        await asyncio.sleep(1.0)
        if waits == 1:
            over.add("b")

    landlords.connecting = connect
    leases = {each: member(grantors, reference(each), may_send=check(each)) for each in "abc"}
    outcomes = await leases["a"].ask_renew_all([(each, 5.0) for each in leases.values()])
    assert landlords.batches == [((HERE,), [("a", 5.0), ("c", 5.0)])]
    assert outcomes[0] == outcomes[2] == 20.0
    assert str(outcomes[1]) == "b is over"


@in_virtual_time
async def test_the_owner_of_the_own_engine_is_asked_before_a_send() -> None:
    engine = Engine()

    def refuse() -> None:
        raise RuntimeError("over")

    lease = member(make(engine), LeaseReference(OWN, 1), may_send=refuse)
    with pytest.raises(RuntimeError, match="over"):
        await lease.renew()
    assert engine.renewed == []


# A batch that fails as a whole.


@in_virtual_time
async def test_after_a_definite_failure_of_a_batch_its_leases_are_renewed_one_by_one(
    landlords: Landlords,
) -> None:
    grantors = make()
    landlords.takes_s = 1.0
    bad = {"c3"}

    def fails(wants: Sequence[Any]) -> Exception | None:
        has_bad = any(lease.cookie in bad for lease, _ in wants)
        return CallRefused("one of them is bad") if has_bad else None

    landlords.fails = fails
    leases = [member(grantors, reference(f"c{each}")) for each in range(20)]
    outcomes = await leases[0].ask_renew_all([(each, 5.0) for each in leases])
    assert [each for each in outcomes if each != 20.0] == [outcomes[3]]
    assert isinstance(outcomes[3], CallRefused)
    assert len(landlords.batches) == 1 + len(leases)
    assert landlords.most == ONE_BY_ONE


@pytest.mark.parametrize("error", [ConnectionLost("gone"), TimeoutError("late"), CallFailed("x")])
def test_an_indefinite_failure_of_a_batch_is_not_repeated(
    landlords: Landlords, error: Exception
) -> None:
    async def scene() -> None:
        grantors = make()
        landlords.fails = lambda wants: error
        leases = [member(grantors, reference(each)) for each in "ab"]
        with pytest.raises(type(error)):
            await leases[0].ask_renew_all([(each, 5.0) for each in leases])
        assert len(landlords.batches) == 1

    run_virtual(scene)


@in_virtual_time
async def test_an_error_about_one_lease_is_its_own_outcome(landlords: Landlords) -> None:
    grantors = make()
    denied = LeaseDenied("no")
    landlords.answer = lambda lease: denied if lease.cookie == "b" else 20.0
    leases = [member(grantors, reference(each)) for each in "ab"]
    assert list(await leases[0].ask_renew_all([(each, 5.0) for each in leases])) == [20.0, denied]
    assert len(landlords.batches) == 1


@pytest.mark.parametrize("error", [Closed("the engine was closed"), HistoryLost("another one")])
def test_the_end_of_a_connection_is_not_the_end_of_a_lease(error: Exception) -> None:
    async def scene() -> None:
        engine = Engine()
        engine.failures[1] = error
        (outcome,) = await make(engine).renew_all([(member(make(), LeaseReference(OWN, 1)), ANY)])
        assert isinstance(outcome, CallFailed)
        assert not is_definite(outcome)

    run_virtual(scene)


# Ends.


@pytest.mark.parametrize(
    ("remaining", "term", "left", "length"),
    [
        (10.0, 20.0, 10.0, 20.0),
        (10.0, 0.0, 10.0, 10.0),
        (-5.0, 20.0, 0.0, 20.0),
        (-5.0, 0.0, 0.0, 0.0),
        (FOREVER, 0.0, FOREVER, FOREVER),
        (10.0, FOREVER, 10.0, 10.0),
    ],
)
def test_a_lease_has_the_end_that_was_recorded(
    remaining: Any, term: Any, left: Any, length: Any
) -> None:
    async def scene() -> None:
        lease = member(make(), reference(), remaining, term)
        assert lease.remaining == left
        assert lease.term == length

    run_virtual(scene)


# Leases for holders.


@in_virtual_time
async def test_a_lease_for_a_holder_equals_others_and_can_be_cancelled(
    landlords: Landlords,
) -> None:
    engine = Engine()
    grantors = make(engine, is_client=True, allowed=None)
    one = grantors.lease_of(reference("a", "anywhere.example:1"), 10.0)
    assert isinstance(one, GrantorLease)
    assert one == grantors.lease_of(reference("a"), 20.0)
    assert hash(one) == hash(grantors.lease_of(reference("a"), 20.0))
    await one.cancel()
    assert landlords.cancelled == ["a"]
    own = grantors.lease_of(LeaseReference(OWN, 3), 10.0)
    await own.cancel()
    assert engine.revoked == [3]
    with pytest.raises(
        CallRefused, match="does not renew the leases of its cluster's own services"
    ):
        await grantors.lease_of(LeaseReference(f"{OWN}/mailboxes", "m"), 10.0).renew()


@in_virtual_time
async def test_a_client_ignores_credentials_which_are_a_servers(landlords: Landlords) -> None:
    grantors = make(is_client=True)
    which = LeaseReference("desks", "c", GrantorKind.LEASEHOLD, (HERE,), "office")
    await grantors.lease_of(which, 10.0).renew()
    assert landlords.tls == [None]


# Connections.


@in_virtual_time
async def test_one_connection_for_the_same_endpoints_is_closed_when_it_was_not_used_for_a_while(
    landlords: Landlords,
) -> None:
    grantors = make()
    for each in "ab":
        await member(grantors, reference(each)).renew()
    assert landlords.opened == [(HERE,)]
    await asyncio.sleep(2 * IDLE_S + 1.0)
    assert landlords.closed == [(HERE,)]
    await member(grantors, reference("a")).renew()
    assert landlords.opened == [(HERE,)] * 2


@in_virtual_time
async def test_a_connection_in_use_is_not_closed(landlords: Landlords) -> None:
    landlords.takes_s = 10 * IDLE_S
    call = asyncio.ensure_future(member(make(), reference(), 1000.0).renew())
    await asyncio.sleep(5 * IDLE_S)
    assert landlords.closed == []
    call.cancel()


@in_virtual_time
async def test_the_number_of_connections_is_limited(landlords: Landlords) -> None:
    grantors = make(allowed=EndpointList(["*"]))
    for each in range(MAX_CONNECTIONS + 1):
        await member(grantors, reference("c", f"h{each}.example:1")).renew()
    await asyncio.sleep(0.0)
    assert landlords.closed == [("h0.example:1",)]
    landlords.takes_s = 1000.0
    calls = [
        asyncio.ensure_future(member(grantors, reference("c", f"i{each}.example:1")).renew())
        for each in range(MAX_CONNECTIONS)
    ]
    await asyncio.sleep(1.0)
    with pytest.raises(TooBusy, match="256 connections to grantors"):
        await member(grantors, reference("c", "one-more.example:1")).renew()
    for call in calls:
        call.cancel()


@in_virtual_time
async def test_close_closes_the_connections_and_fails_indefinitely_afterwards(
    landlords: Landlords,
) -> None:
    grantors = make()
    lease = member(grantors, reference())
    await lease.renew()
    await grantors.close()
    assert landlords.closed == [(HERE,)]
    with pytest.raises(CallFailed, match="were closed") as caught:
        await lease.renew()
    assert not is_definite(caught.value)


# Clusters of etcd.


class FakeCluster(Engine):
    """A `RemoteEngine`: `cluster_id` is that of the class."""

    cluster_id = 8
    made: list["FakeCluster"]
    fails: Exception | None = None

    def __init__(self, channel: Any, clock: Any) -> None:
        del clock
        super().__init__()
        self.channel = channel
        self.is_open = True
        self.closed = 0
        self.checked: list[int] = []
        FakeCluster.made.append(self)

    async def start(self) -> None:
        if FakeCluster.fails is not None:
            raise FakeCluster.fails

    async def close(self) -> None:
        self.closed += 1

    async def renew_all(self, leases: Any, may_send: Any = None) -> Renewed:
        for lease in leases:
            may_send(lease)
            self.checked.append(lease)
        return await super().renew_all(leases)


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[FakeCluster]:
    monkeypatch.setattr(grantor_connections, "RemoteEngine", FakeCluster)
    FakeCluster.made = []
    FakeCluster.fails = None
    return FakeCluster.made


def etcd(lease: int, grantor: str = OTHER) -> LeaseReference:
    return LeaseReference(grantor, lease, GrantorKind.ETCD, (HERE,))


@in_virtual_time
async def test_leases_of_an_etcd_are_renewed_for_their_own_ttl(
    clusters: list[FakeCluster],
) -> None:
    grantors = make()
    leases = [member(grantors, etcd(each)) for each in (1, 2)]
    assert list(await leases[0].ask_renew_all([(each, 5.0) for each in leases])) == [30.0, 30.0]
    assert [each.renewed for each in clusters] == [[[1, 2]]]
    assert clusters[0].checked == [1, 2]
    await grantors.close()
    assert clusters[0].closed == 1


@in_virtual_time
async def test_a_lease_of_another_cluster_is_never_renewed(clusters: list[FakeCluster]) -> None:
    grantors = make()
    wrong = member(grantors, etcd(1, f"{9:016x}"))
    with pytest.raises(CallFailed, match="is of cluster 0000000000000009; found cluster") as caught:
        await wrong.renew()
    assert not is_definite(caught.value)
    await member(grantors, etcd(1)).renew()
    assert [each.renewed for each in clusters] == [[[1]]]
    assert clusters[0].closed == 0  # a wrong reference does not disturb the others


@in_virtual_time
async def test_a_cluster_that_was_replaced_is_connected_again(clusters: list[FakeCluster]) -> None:
    grantors = make()
    lease = member(grantors, etcd(1))
    await lease.renew()
    clusters[0].is_open = False  # its history was lost
    await lease.renew()
    assert [each.closed for each in clusters] == [1, 0]


@in_virtual_time
async def test_a_cluster_that_cannot_be_reached_is_tried_again(
    clusters: list[FakeCluster],
) -> None:
    lease = member(make(), etcd(1))
    FakeCluster.fails = ConnectionLost("gone")
    with pytest.raises(ConnectionLost):
        await lease.renew()
    assert clusters[0].closed == 1
    FakeCluster.fails = None
    assert await lease.renew() == 30.0


def test_the_limits_have_names() -> None:
    assert (MAX_CONNECTIONS, ONE_BY_ONE, COMPOSED) == (256, 8, 4)


def test_a_member_is_a_lease() -> None:
    assert issubclass(MemberLease, Lease)
