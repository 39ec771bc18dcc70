"""Landlords and renewal managers of `leasehold.sync`: over sockets, after a fork, at exit."""

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import leasehold
from leasehold import (
    ANY,
    FOREVER,
    ConnectFailed,
    DurationPolicy,
    EndReason,
    LeaseDenied,
    LeaseRequest,
    NoticeKind,
    UnknownLease,
)
from leasehold.sync import Landlord, Lease, RemoteLandlord, RenewalManager, RenewalNotice
from tests.support.scripts import printed_by, until

TERM_S = 8.0
RTT_S = 2.0
SOON_S = 60.0


class Office:
    """A landlord on the network, on an event loop in a thread of its own."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, EndReason]] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(SOON_S)

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.landlord: leasehold.Landlord[str] = leasehold.Landlord(
            DurationPolicy(60.0, TERM_S), on_ended=lambda *end: self.ended.append(end)
        )
        async with await leasehold.serve_landlord(self.landlord, grant=self._grant) as server:
            self.address = server.address
            self._ready.set()
            await self._stop.wait()

    def _grant(self, request: LeaseRequest) -> leasehold.Lease:
        if request.resource == "taken":
            raise LeaseDenied("it is taken")
        return self.landlord.grant(request.resource, request.duration)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SOON_S)


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.close()


def test_a_remote_lease_is_granted_renewed_and_cancelled(office: Office) -> None:
    with RemoteLandlord(office.address) as remote:
        lease = remote.grant("desk", 10.0, holder="anna")
        assert isinstance(lease, Lease)
        assert lease.grantor == office.landlord.name
        assert lease.renew(20.0) == lease.term == 20.0
        assert remote.lease_from_bytes(lease.to_bytes("absolute")) == lease
        lease.cancel()
        assert office.ended == [("desk", EndReason.CANCELLED)]
        with pytest.raises(UnknownLease, match="cancelled"):
            lease.renew()
        with pytest.raises(LeaseDenied, match="it is taken"):
            remote.grant("taken")


def test_a_remote_landlord_that_does_not_answer_is_a_connection_error() -> None:
    with RemoteLandlord("127.0.0.1:1", timeout=5.0) as remote, pytest.raises(ConnectFailed):
        remote.grant("desk")


def test_threads_share_a_remote_landlord(office: Office) -> None:
    def work() -> None:
        for _ in range(20):
            lease = remote.grant("desk", 30.0)
            lease.renew(40.0)
            lease.cancel()

    with RemoteLandlord(office.address) as remote:
        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON_S)
    assert office.ended == [("desk", EndReason.CANCELLED)] * 100
    assert len(office.landlord) == 0


def test_a_manager_keeps_remote_leases_alive_while_the_program_sleeps(office: Office) -> None:
    with RemoteLandlord(office.address) as remote:
        leases = [remote.grant(f"desk {number}") for number in range(10)]
        with RenewalManager(dict.fromkeys(leases, FOREVER), TERM_S, rtt=RTT_S) as manager:
            time.sleep(2 * TERM_S)
            assert office.ended == []
            assert sorted(map(hash, manager.leases())) == sorted(map(hash, leases))
            manager.cancel(leases[0])
            assert leases[0] not in manager
            assert len(manager) == 9
        until(lambda: len(office.ended) == 10)


def test_a_manager_keeps_leases_of_a_landlord_for_threads_and_reports_what_fails() -> None:
    notices: list[RenewalNotice] = []
    ended: list[tuple[str, EndReason]] = []

    def listener(notice: RenewalNotice) -> None:
        notices.append(notice)
        assert notice.lease not in manager, "it may call the manager"
        raise KeyError("a bug, which is logged")

    with (
        Landlord[str](
            DurationPolicy(60.0, TERM_S), on_ended=lambda *end: ended.append(end)
        ) as landlord,
        RenewalManager(rtt=RTT_S) as manager,
    ):
        kept, withdrawn, brief = (landlord.grant(name) for name in ("kept", "withdrawn", "brief"))
        manager.renew_until(kept, FOREVER, TERM_S)
        manager.renew_until(withdrawn, FOREVER, TERM_S, listener)
        manager.renew_for(brief, 1.5 * TERM_S, TERM_S, listener)
        landlord.cancel(withdrawn.cookie)
        until(lambda: len(notices) == 2)
        until(lambda: len(ended) == 2)
        assert ended == [("withdrawn", EndReason.CANCELLED), ("brief", EndReason.EXPIRED)]
        assert kept.remaining
        assert manager.expiration(kept) is FOREVER
        later = datetime.now(UTC) + timedelta(hours=1)
        manager.set_expiration(kept, later)
        assert manager.expiration(kept) == later
        manager.set_expiration(kept, datetime.now(UTC) + timedelta(seconds=0.1))
        until(lambda: len(manager) == 0)
    failed, expired = notices
    assert (failed.lease, failed.kind) == (withdrawn, NoticeKind.FAILED)
    assert isinstance(failed.error, UnknownLease)
    assert (expired.lease, expired.kind, expired.error) == (brief, NoticeKind.EXPIRED, None)
    assert failed.manager is expired.manager is manager


def test_a_manager_checks_its_arguments_and_leaves_no_lease_managed() -> None:
    landlord: Landlord[str] = Landlord(DurationPolicy(60.0, 60.0))
    lease = landlord.grant("desk")
    foreign: Any = leasehold.Landlord[str](DurationPolicy(60.0, 60.0), expiry=leasehold.lazy())
    with RenewalManager() as manager:
        with pytest.raises(TypeError, match=r"must be a leasehold\.sync\.Lease"):
            manager.renew_until(foreign.grant("desk"), FOREVER)
        with pytest.raises(ValueError, match="ANY"):
            manager.renew_for(lease, 10.0, ANY)
        with pytest.raises(UnknownLease):
            manager.remove(lease)
        manager.renew_until(lease, FOREVER)
        manager.remove(lease)
        manager.renew_until(lease, FOREVER)
        manager.clear()
        assert (len(manager), repr(manager)) == (0, "<RenewalManager of 0 leases>")
    with pytest.raises(TypeError, match="mapping"):
        RenewalManager([lease])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RenewalManager({lease: FOREVER}, listener=5)  # type: ignore[arg-type]
    landlord.close()


def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    assert (
        printed_by("""
            import os, leasehold, leasehold.sync

            def refused(call):
                try:
                    call()
                except leasehold.Forked:
                    return "refused"

            policy = leasehold.DurationPolicy(60, 60)
            ended = []
            landlord = leasehold.sync.Landlord(policy, on_ended=lambda *end: ended.append(end))
            lease = landlord.grant("desk")
            manager = leasehold.sync.RenewalManager({lease: leasehold.FOREVER})
            remote = leasehold.sync.RemoteLandlord("127.0.0.1:1")
            child = os.fork()
            if not child:
                print(refused(lambda: landlord.grant("desk")))
                print(refused(lambda: landlord.renew(lease.cookie)))
                print(refused(lambda: landlord.now))
                print(refused(lambda: manager.remove(lease)))
                print(refused(lambda: remote.grant("desk")))
                manager.close(), remote.close(), landlord.__exit__()
                own = leasehold.sync.Landlord(policy)
                print("its own:", own.grant("desk").renew(5), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print("parent:", landlord.renew(lease.cookie, 7), lease.renew(8))
            manager.cancel(lease)
            landlord.__exit__()
            print(len(landlord), ended)
        """)
        == "refused\n" * 5
        + "its own: 5.0\nparent: 7.0 8.0\n0 [('desk', <EndReason.CANCELLED: 'cancelled'>)]\n"
    )


def test_a_program_may_end_with_a_landlord_and_a_manager_open() -> None:
    assert (
        printed_by("""
            import leasehold, leasehold.sync

            landlord = leasehold.sync.Landlord(leasehold.DurationPolicy(60, 60))
            manager = leasehold.sync.RenewalManager({landlord.grant("desk"): leasehold.FOREVER})
            print(len(manager))
        """)
        == "1\n"
    )
