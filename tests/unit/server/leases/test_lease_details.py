"""`leasehold.v1.Leases/Show`: one lease, as it is; and nothing that is not on disk."""

import asyncio

from leasehold.keyspace.operations import Grant, Put, Revoke
from leasehold.keyspace.ranges import LONG
from leasehold.server.leases.service import PATH
from leasehold.wire import leases_pb2 as pb
from tests.support.v1 import Office, in_office, in_office_with


async def show(office: Office, lease: int, *, keys: bool = False) -> pb.ShowResponse:
    answer, _ = await office.call("Show", pb.ShowRequest(id=lease, keys=keys))
    return pb.ShowResponse.FromString(answer)


@in_office
async def test_a_lease_is_shown_with_term_remaining_keys_and_holder(office: Office) -> None:
    await office.grant(ttl_ms=1_500, id=-3, holder="anna")
    for key in (b"b", b"a"):
        office.put(key, -3)
    await office.settled()
    await asyncio.sleep(0.25)
    shown = await show(office, -3, keys=True)
    lease = shown.lease
    assert (lease.id, lease.ttl_ms, lease.remaining_ms) == (-3, 1_500, 1_250)
    assert (lease.keys, lease.holder, list(shown.keys)) == (2, "anna", [b"a", b"b"])
    assert list((await show(office, -3)).keys) == [], "nobody has asked for them"
    assert shown.header.revision == office.store.durable_revision


@in_office
async def test_why_a_lease_is_not_there_is_told(office: Office) -> None:
    await office.grant(ttl_ms=100, id=1)
    await office.grant(id=2)
    await office.revoke_all(2)
    await asyncio.sleep(1.0)
    found = [await show(office, lease) for lease in (1, 2, 3)]
    assert [each.reason for each in found] == [pb.EXPIRED, pb.REVOKED, pb.UNKNOWN]
    assert not any(each.HasField("lease") for each in found)


@in_office_with(by_hand=True)
async def test_what_is_not_on_disk_waits_for_it(office: Office) -> None:
    async def position(lease: int) -> int:
        return (await office.call("Show", pb.ShowRequest(id=lease)))[1]

    office.store.apply(Grant(1, 60.0))
    assert await position(1) == office.store.position > office.store.durable
    office.commit()
    assert await position(1) == 0
    office.store.apply(Put(b"a", b"", 1))
    assert await position(1) == office.store.position, "how many keys it has is told"
    office.commit()
    office.store.apply(Revoke(1))
    assert await position(1) == office.store.position


@in_office
async def test_very_many_keys_are_told_in_order_all_the_same(office: Office) -> None:
    await office.grant(id=7)
    names = [b"%06d" % (number * 7_919 % 10_007) for number in range(LONG + 1)]
    for name in names:
        office.put(name, 7)
    await office.settled()
    request = pb.ShowRequest(id=7, keys=True).SerializeToString()
    pieces = await office.methods[PATH + "Show"].call(request)
    shown = pb.ShowResponse.FromString(b"".join(pieces.pieces))
    assert list(shown.keys) == sorted(names)
    assert shown.lease.keys == len(names)
