"""A cluster of one member, on both servers."""

from pathlib import Path

import pytest
from grpc import StatusCode

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress
from leasehold.server.etcd.cluster import client_urls
from leasehold.wire import cluster_pb2 as cluster
from tests.conformance.client import Client, fails, header
from tests.conformance.operators import Operator
from tests.support.servers import leasehold_command, running

NOT_FOUND = "etcdserver: member not found"
NOT_ENOUGH = "etcdserver: re-configuration failed due to not enough started members"
NOT_A_LEARNER = "etcdserver: can only promote a learner member"
BAD_URLS = "etcdserver: given member URLs are invalid"


@pytest.mark.parametrize("linearizable", [False, True])
def test_there_is_one_member_and_clients_reach_it_where_it_listens(
    client: Client, linearizable: bool
) -> None:
    request = cluster.MemberListRequest(linearizable=linearizable)
    body = client.raw("/etcdserverpb.Cluster/MemberList", request.SerializeToString())
    answer = cluster.MemberListResponse.FromString(body)
    (member,) = answer.members
    assert answer.header.member_id == member.ID
    assert member.name == "default"
    assert list(member.clientURLs) == [f"http://{client.endpoint}"]
    assert len(member.peerURLs) == 1
    assert not member.isLearner


def test_headers_of_the_cluster_have_no_revision(operator: Operator, client: Client) -> None:
    assert client.revision() > 0
    assert operator.members().header == header(0)


@pytest.mark.parametrize("member", [0, 5])
def test_an_unknown_member_is_not_found(operator: Operator, member: int) -> None:
    with fails(StatusCode.NOT_FOUND, NOT_FOUND):
        operator.remove(member)
    with fails(StatusCode.NOT_FOUND, NOT_FOUND):
        operator.promote(member)
    with fails(StatusCode.NOT_FOUND, NOT_FOUND):
        operator.update(member, "http://127.0.0.1:1")


def test_the_only_member_cannot_be_removed(operator: Operator) -> None:
    with fails(StatusCode.UNKNOWN, NOT_ENOUGH):
        operator.remove(operator.me())
    assert operator.me()


def test_what_is_no_learner_cannot_be_promoted(operator: Operator) -> None:
    with fails(StatusCode.FAILED_PRECONDITION, NOT_A_LEARNER):
        operator.promote(operator.me())


def test_an_update_says_where_peers_would_reach_the_member(operator: Operator) -> None:
    (before,) = operator.members().members
    answer = operator.update(before.ID, "http://127.0.0.1:1", "http://127.0.0.1:2")
    assert answer.header == header(0)
    (after,) = answer.members
    assert list(after.peerURLs) == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    assert operator.members().members[0] == after
    operator.update(before.ID, *before.peerURLs)
    assert operator.members().members[0] == before


@pytest.mark.parametrize(
    "url",
    [None, "", "x", "127.0.0.1:1", "http://127.0.0.1", "ftp://127.0.0.1:3", "http://127.0.0.1:1/p"],
)
def test_a_member_is_added_only_with_urls(operator: Operator, url: str | None) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, BAD_URLS):
        operator.add(*([] if url is None else [url]))


def test_a_second_unstarted_member_is_refused_by_etcd_and_any_by_ours(fresh_client: Client) -> None:
    operator = Operator(fresh_client)
    is_ours = list(operator.members().members[0].peerURLs) == [f"http://{fresh_client.endpoint}"]
    if not is_ours:
        operator.add("http://127.0.0.1:1")
    with fails(StatusCode.UNKNOWN, NOT_ENOUGH):
        operator.add("http://127.0.0.1:2")
    assert len(operator.members().members) == (1 if is_ours else 2)


def test_what_an_update_said_is_there_after_a_restart_of_ours(tmp_path: Path) -> None:
    def command(_: Path, port: int) -> list[str]:
        return leasehold_command(tmp_path / "data", port)

    with running(command, tmp_path) as server:
        operator = Operator(client := Client(server.endpoint))
        member = operator.me()
        operator.update(member, "http://10.0.0.1:2380")
        client.close()
    with running(command, tmp_path) as server:
        (again,) = Operator(client := Client(server.endpoint)).members().members
        assert (again.ID, list(again.peerURLs)) == (member, ["http://10.0.0.1:2380"])
        assert list(again.clientURLs) == [f"http://{server.endpoint}"]
        client.close()


def test_client_urls_are_where_a_server_listens(tmp_path: Path) -> None:
    bound: list[Address] = [
        TcpAddress("127.0.0.1", 2379),
        TcpAddress("::1", 2379),
        TcpAddress("db.example", 1),
        TcpAddress("127.0.0.1", 2379),
        UnixAddress(str(tmp_path / "socket")),
    ]
    rest = ["127.0.0.1:2379", "[::1]:2379", "db.example:1"]
    unix = f"unix://{tmp_path / 'socket'}"
    assert client_urls(bound, is_tls=False) == [*(f"http://{each}" for each in rest), unix]
    assert client_urls(bound, is_tls=True) == [*(f"https://{each}" for each in rest), unix]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104  nothing is bound
def test_an_address_that_stands_for_all_is_shown_as_one_that_can_be_reached(host: str) -> None:
    (url,) = client_urls([TcpAddress(host, 2379)], is_tls=False)
    assert url.startswith("http://")
    assert url.endswith(":2379")
    assert host not in {url[7:-5], url[8:-6]}
