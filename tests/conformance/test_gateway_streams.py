"""Streams of etcd's JSON gateway: a line for each message, and how they end."""

import json
import socket
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

import pytest

from tests.conformance.client import Client, Granter, watch_one
from tests.conformance.gateway_client import Answer, GatewayClient, encoded, without_revision
from tests.conformance.test_gateway import FROM_GRPC, JSON, refusal
from tests.support.servers import RunningServer


@pytest.fixture
def gateway(server: RunningServer) -> Iterator[GatewayClient]:
    client = GatewayClient(server.endpoint)
    yield client
    client.close()


def _watch(key: bytes, **more: Any) -> dict[str, Any]:
    return {"create_request": {"key": encoded(key), **more}}


def test_a_watch_has_a_line_for_each_response(
    gateway: GatewayClient, client: Client, key: bytes
) -> None:
    with gateway.stream("/v3/watch", _watch(key)) as lines:
        assert (lines.status, lines.is_chunked) == (200, True)
        assert without_revision(lines.next()) == '{"result":{HEADER,"created":true}}\n'
        put = client.put(key, b"1").header.revision
        assert lines.next() == (
            f'{{"result":{{"header":{{"revision":"{put}"}},"events":[{{"kv":{{'
            f'"key":"{encoded(key)}","create_revision":"{put}","mod_revision":"{put}",'
            f'"version":"1","value":"MQ=="}}}}]}}}}\n'
        )
        gone = client.delete(key).header.revision
        assert lines.next() == (
            f'{{"result":{{"header":{{"revision":"{gone}"}},"events":[{{"type":"DELETE",'
            f'"kv":{{"key":"{encoded(key)}","mod_revision":"{gone}"}}}}]}}}}\n'
        )


def _chunk(stream: BufferedReader) -> bytes:
    """Read a chunk that has more in it than the end of a line."""
    chunk = b""
    while not chunk.strip():
        chunk = stream.read(int(stream.readline(), 16))
        assert stream.readline() == b"\r\n"
    return chunk


@pytest.mark.parametrize("size", [100, 10_000, 100_000, 1_000_000])
def test_a_line_comes_in_one_chunk(
    server: RunningServer, client: Client, key: bytes, size: int
) -> None:
    """Some clients take a chunk for a line, etcd3gw among them."""
    body = json.dumps(_watch(key)).encode()
    head = b"POST /v3/watch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head + body)
        with connection.makefile("rb") as stream:
            while stream.readline().strip():  # the fields
                pass
            assert json.loads(_chunk(stream))["result"]["created"]
            client.put(key, b"x" * size)
            (event,) = json.loads(_chunk(stream))["result"]["events"]
    assert event["kv"]["value"] == encoded(b"x" * size)


def test_a_body_may_ask_for_several_watches(
    gateway: GatewayClient, client: Client, key: bytes
) -> None:
    body = "\n".join(json.dumps(_watch(key + name)) for name in (b"a", b"b"))
    with gateway.stream("/v3/watch", body + " x") as lines:
        assert lines.result()["created"]
        assert lines.result()["watch_id"] == "1"
        client.put(key + b"b")
        assert lines.result()["watch_id"] == "1"
        client.put(key + b"a")
        assert "watch_id" not in lines.result()


def test_a_watch_of_the_past_and_its_compaction(
    gateway: GatewayClient, client: Client, key: bytes
) -> None:
    first = client.put(key, b"1").header.revision
    second = client.put(key, b"2").header.revision
    with gateway.stream("/v3/watch", _watch(key, start_revision=str(first))) as lines:
        assert lines.result()["created"]
        events = lines.result()["events"]
        assert [event["kv"]["mod_revision"] for event in events] == [str(first), str(second)]
    client.compact(second)
    with gateway.stream("/v3/watch", _watch(key, startRevision=first)) as lines:
        assert lines.result()["created"]
        ended = lines.result()
        assert (ended["canceled"], ended["compact_revision"]) == (True, str(second))


def test_a_watch_shows_what_was_before(gateway: GatewayClient, client: Client, key: bytes) -> None:
    client.put(key, b"before")
    body = _watch(key, prev_kv=True, filters=["NOPUT"])
    with gateway.stream("/v3/watch", body) as lines:
        assert lines.result()["created"]
        client.put(key, b"later")
        client.delete(key)
        event = lines.result()["events"][0]
        assert (event["type"], event["prev_kv"]["value"]) == ("DELETE", encoded(b"later"))


def test_a_watch_that_is_long(gateway: GatewayClient, client: Client, key: bytes) -> None:
    end = encoded(key[:-1] + bytes((key[-1] + 1,)))
    client.put_all([key + b"%05d" % number for number in range(3000)], b"x" * 50)
    with gateway.stream("/v3/watch", _watch(key, range_end=end)) as lines:
        assert lines.result()["created"]
        client.delete(key, key[:-1] + bytes((key[-1] + 1,)))
        assert len(lines.result()["events"]) == 3000
        client.put(key + b"later")
        assert lines.result()["events"][0]["kv"]["key"] == encoded(key + b"later")


def test_progress_is_told(gateway: GatewayClient) -> None:
    with gateway.stream("/v3/watch", {"progress_request": {}}) as lines:
        assert without_revision(lines.next()) == '{"result":{HEADER,"watch_id":"-1"}}\n'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{", "unexpected EOF"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ('{"ID":"x"}', "invalid character 'x' looking for beginning of value"),
        (
            "[]",
            "json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
        ),
    ],
)
def test_what_cannot_be_read_in_a_stream_of_requests_is_500(
    gateway: GatewayClient, body: str, why: str
) -> None:
    answer = gateway.post("/v3/lease/keepalive", body)
    assert (answer.status, answer.fields, answer.text) == (500, JSON, refusal(why, 2))


@pytest.mark.parametrize("rest", ["", "x", '{"ID":"x"}', "[]"])
def test_renewals_are_answered_line_by_line(
    gateway: GatewayClient, grant: Granter, rest: str
) -> None:
    lease = grant(600)
    answer = gateway.post("/v3/lease/keepalive", f'{{"ID":{lease}}}\n{{"ID":"1"}}{rest}')
    assert (answer.status, answer.fields) == (200, FROM_GRPC)
    first, second, end = answer.text.split("\n")
    assert without_revision(first) == f'{{"result":{{HEADER,"ID":"{lease}","TTL":"600"}}}}'
    assert without_revision(second) == '{"result":{HEADER,"ID":"1"}}'
    assert end == ""


def test_no_renewal_is_answered_with_nothing(gateway: GatewayClient) -> None:
    answer = gateway.post("/v3/lease/keepalive", "")
    assert (answer.status, answer.fields, answer.text) == (200, JSON, "")


def _timed_out(gateway: GatewayClient, body: Any, status: int) -> Answer:
    """Watch for a moment, or for longer if a slow machine has not answered anything by then.

    Etcd has a race within: once in a while it says UNKNOWN instead.
    """
    for attempt in range(5):
        answer = gateway.post("/v3/watch", body, grpc_timeout=f"{300 << attempt}m")
        is_unknown = '"code":2' in answer.text or '"grpc_code":2' in answer.text
        if answer.status == status and not is_unknown:
            break
    return answer


def test_a_stream_that_fails_says_so_in_its_last_line(gateway: GatewayClient, key: bytes) -> None:
    answer = _timed_out(gateway, _watch(key), 200)
    assert (answer.status, answer.fields) == (200, FROM_GRPC)
    created, error = answer.text.split("\n")
    assert without_revision(created) == '{"result":{HEADER,"created":true}}'
    assert error == (
        '{"error":{"grpc_code":4,"http_code":504,"message":"context deadline exceeded",'
        '"http_status":"Gateway Timeout"}}'
    )


@pytest.mark.parametrize("body", ["{}", '{"create_request":null}'])
def test_a_stream_that_fails_before_anything_was_said_has_a_status(
    gateway: GatewayClient, body: str
) -> None:
    answer = _timed_out(gateway, body, 504)
    assert (answer.status, answer.fields) == (504, JSON)
    assert answer.text == refusal("context deadline exceeded", 4)


def test_observe_is_a_stream_of_one_request(
    gateway: GatewayClient, grant: Granter, key: bytes
) -> None:
    elected = gateway.post(
        "/v3/election/campaign",
        {"name": encoded(key), "lease": grant(), "value": encoded(b"me")},
    )
    leader = elected.json["leader"]
    with gateway.stream("/v3/election/observe", {"name": encoded(key)}) as lines:
        assert (lines.status, lines.is_chunked) == (200, True)
        assert lines.result()["kv"]["value"] == encoded(b"me")
        told = gateway.post(
            "/v3/election/proclaim", {"leader": leader, "value": encoded(b"still me")}
        )
        assert told.status == 200
        assert lines.result()["kv"]["value"] == encoded(b"still me")
    assert gateway.post("/v3/election/resign", {"leader": leader}).status == 200
    unread = gateway.post("/v3/election/observe", "x")
    assert unread.status == 400


def test_a_snapshot_comes_in_lines(gateway: GatewayClient) -> None:
    with gateway.stream("/v3/maintenance/snapshot", {}) as lines:
        assert lines.result()["blob"]


def test_a_lock_is_released_when_its_waiter_hangs_up(
    gateway: GatewayClient, client: Client, grant: Granter, key: bytes
) -> None:
    mine, other = grant(), grant()
    locked = gateway.post("/v3/lock/lock", {"name": encoded(key), "lease": mine})
    waiting = key + b"/%x" % other
    with client.watch() as watch:
        watch.send(watch_one(waiting))
        assert watch.receive().created
        hasty = GatewayClient(gateway.endpoint)
        body = json.dumps({"name": encoded(key), "lease": str(other)})
        hasty._connection.request("POST", "/v3/lock/lock", body)
        assert watch.receive().events[0].kv.key == waiting
        hasty.close()
        assert watch.receive().events[0].type == 1, "its key is deleted"
    assert gateway.post("/v3/lock/unlock", {"key": locked.json["key"]}).status == 200
