"""LeaseKeepAlive: a stream of renewals, one answer each, in order."""

import time

import pytest
from grpc import RpcError

from leasehold.wire.rpc_pb2 import LeaseKeepAliveRequest, LeaseKeepAliveResponse
from tests.conformance.client import TRIES_MAX, Client, Granter, header

SHORT_TTL_S = 2


def test_a_renewal_answers_with_the_granted_ttl(client: Client, grant: Granter) -> None:
    lease, start = grant(60), client.revision()
    with client.keep_alive() as stream:
        for _ in range(3):
            stream.send(LeaseKeepAliveRequest(ID=lease))
            expected = LeaseKeepAliveResponse(header=header(start), ID=lease, TTL=60)
            assert stream.receive() == expected


@pytest.mark.parametrize("unknown", [0, 404_404, -404_404])
def test_an_unknown_lease_has_ttl_zero_and_the_stream_stays_open(
    client: Client, grant: Granter, unknown: int
) -> None:
    lease, start = grant(60), client.revision()
    with client.keep_alive() as stream:
        stream.send(LeaseKeepAliveRequest(ID=unknown))
        assert stream.receive() == LeaseKeepAliveResponse(header=header(start), ID=unknown)
        stream.send(LeaseKeepAliveRequest(ID=lease))
        assert stream.receive().TTL == 60


def test_a_revoked_lease_has_ttl_zero(client: Client, grant: Granter) -> None:
    lease = grant(60)
    with client.keep_alive() as stream:
        stream.send(LeaseKeepAliveRequest(ID=lease))
        assert stream.receive().TTL == 60
        client.revoke(lease)
        stream.send(LeaseKeepAliveRequest(ID=lease))
        assert (answer := stream.receive()).TTL == 0
        assert lease == answer.ID


def test_one_shot(client: Client, grant: Granter) -> None:
    lease, start = grant(60), client.revision()
    with client.keep_alive() as stream:
        stream.send(LeaseKeepAliveRequest(ID=lease))
        stream.half_close()
        assert stream.rest() == [LeaseKeepAliveResponse(header=header(start), ID=lease, TTL=60)]


def test_a_stream_without_requests_ends_without_answers(client: Client) -> None:
    with client.keep_alive() as stream:
        stream.half_close()
        assert stream.rest() == []


def test_answers_come_in_the_order_of_requests(client: Client, grant: Granter) -> None:
    leases = [grant(60 + number) for number in range(10)] * 5
    with client.keep_alive() as stream:
        for lease in leases:
            stream.send(LeaseKeepAliveRequest(ID=lease))
        stream.half_close()
        answers = stream.rest()
    assert [answer.ID for answer in answers] == leases
    assert [answer.TTL for answer in answers] == [60 + number for number in range(10)] * 5


def test_the_header_has_the_current_revision(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant(60)
    with client.keep_alive() as stream:
        for _ in range(3):
            revision = client.put(key).header.revision
            stream.send(LeaseKeepAliveRequest(ID=lease))
            assert stream.receive().header == header(revision)


def test_a_renewed_lease_outlives_its_first_term(
    client: Client, key: bytes, grant: Granter
) -> None:
    for tries_left in reversed(range(TRIES_MAX)):
        renewed_at = time.monotonic()
        end = renewed_at + 1.75 * SHORT_TTL_S
        try:
            lease = grant(SHORT_TTL_S)
            client.put(key, lease=lease)
            with client.keep_alive() as stream:
                while (now := time.monotonic()) < end:
                    stream.send(LeaseKeepAliveRequest(ID=lease))
                    assert stream.receive().TTL == SHORT_TTL_S
                    renewed_at = now
                    time.sleep(0.2)  # the pace of the renewals; nothing is hoped for
            assert client.range(key).count == 1
        except (AssertionError, RpcError):
            if not tries_left or time.monotonic() - renewed_at < SHORT_TTL_S:
                raise  # else this machine took a whole term between two renewals
        else:
            return
