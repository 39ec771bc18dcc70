"""What users of python-etcd3 do, one line for each outcome. Run in the client's own environment.

etcd-sdk-python (`pyetcd`) has the same interface: the first argument says which one it is.
"""

import importlib
import io
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

etcd3: Any = importlib.import_module(sys.argv[1])
Client = Any

WAIT_S = 15.0


def tell(what: str, *outcome: object) -> None:
    print(what, *outcome, sep=": ", flush=True)


def keys(client: Client) -> None:
    tell("get of nothing", client.get("nothing"))
    first = client.put("app/a", "1").header.revision
    client.put("app/b", "2")
    answer = client.put("app/a", "3", prev_kv=True)
    tell("previous", answer.prev_kv.value, answer.header.revision - first)
    value, meta = client.get("app/a")
    tell("get", value, meta.key, meta.version, meta.mod_revision - meta.create_revision)
    tell("prefix", [(value, meta.key) for value, meta in client.get_prefix("app/")])
    descending = client.get_prefix("app/", sort_order="descend", sort_target="key")
    tell("descending", [value for value, _ in descending])
    tell("keys only", [meta.key for _, meta in client.get_prefix("app/", keys_only=True)])
    tell("range", [value for value, _ in client.get_range("app/a", "app/b")])
    tell("all", len(list(client.get_all())))
    tell("put if not exists", client.put_if_not_exists("app/a", "4"), client.get("app/a")[0])
    tell("replace", client.replace("app/a", "3", "5"), client.replace("app/a", "3", "6"))
    tell("delete", client.delete("app/a"), client.delete("app/a"))
    tell("delete prefix", client.delete_prefix("app/").deleted)


def transactions(client: Client) -> None:
    client.put("balance", "10")
    compare, ops = client.transactions, client.transactions
    is_done, answers = client.transaction(
        compare=[compare.value("balance") == "10", compare.version("balance") > 0],
        success=[ops.put("balance", "20"), ops.get("balance")],
        failure=[ops.get("balance")],
    )
    tell("transaction", is_done, [value for value, _ in answers[1]])
    is_done, answers = client.transaction(
        compare=[compare.create("balance") == 0],
        success=[ops.put("balance", "30")],
        failure=[ops.delete("balance"), ops.txn([], [ops.put("nested", "1")], [])],
    )
    tell("other branch", is_done, len(answers), client.get("balance"), client.get("nested")[0])
    try:
        client.transaction(compare=[], success=[ops.put("twice", "1")] * 2, failure=[])
    except grpc.RpcError as error:
        tell("twice", error.code().name, error.details())


def leases(client: Client) -> None:
    lease = client.lease(60)
    client.put("under/lease", "1", lease=lease)
    tell("lease", lease.ttl, lease.granted_ttl, 55 <= lease.remaining_ttl <= 60, lease.keys)
    tell("refresh", [answer.TTL for answer in lease.refresh()])
    lease.revoke()
    tell("revoked", client.get("under/lease"), lease.remaining_ttl, lease.granted_ttl)
    tell("refresh after the end", [answer.TTL for answer in lease.refresh()])
    tell("chosen id", client.lease(60, lease_id=4711).id)
    for what, do in {
        "same id": lambda: client.lease(60, lease_id=4711),
        "unknown lease": lambda: client.put("x", "y", lease=12345),
        "revoke unknown": lambda: client.revoke_lease(12345),
    }.items():
        tell_failure(what, do)


def tell_failure(what: str, do: Callable[[], object]) -> None:
    try:
        tell(what, do())
    except etcd3.exceptions.Etcd3Exception as error:
        tell(what, type(error).__name__)
    except grpc.RpcError as error:
        tell(what, error.code().name, error.details())


def expiry(client: Client) -> None:
    """A key ends with its lease, and whoever watches it is told."""
    events, cancel = client.watch("ephemeral")
    lease = client.lease(2)
    client.put("ephemeral", "soon gone", lease=lease)
    tell("put", type(next(events)).__name__)
    tell("expired", type(next(events)).__name__, client.get("ephemeral"))
    cancel()


def until_watching(client: Client) -> None:
    """Wait until a lock's key is watched: this client misses what happens before."""
    give_up_at = time.monotonic() + WAIT_S
    while not client.watcher._callbacks:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def locks(client: Client, other: Client) -> None:
    lock, rival = client.lock("desk", ttl=30), other.lock("desk", ttl=30)
    tell("acquire", lock.acquire(), lock.is_acquired(), rival.is_acquired())
    tell("contended", rival.acquire(timeout=0), rival.acquire(timeout=1))
    tell("refresh", [answer.TTL for answer in lock.refresh()])
    won: queue.Queue[bool] = queue.Queue()
    waiter = threading.Thread(target=lambda: won.put(rival.acquire(timeout=WAIT_S)))
    waiter.start()
    until_watching(other)
    tell("release", lock.release())
    tell("handed over", won.get(timeout=WAIT_S), lock.is_acquired(), rival.is_acquired())
    waiter.join()
    tell("release by another", lock.release(), rival.is_acquired(), rival.release())
    with client.lock("desk", ttl=30) as held:
        tell("in a block", held.is_acquired())
    tell("after the block", held.is_acquired())
    short = client.lock("short", ttl=2)
    short.acquire()
    tell("after expiry", other.lock("short", ttl=30).acquire(timeout=WAIT_S), short.is_acquired())


def watches(client: Client) -> None:
    heard: queue.Queue[tuple[str, bytes, bytes]] = queue.Queue()

    def hear(response: Any) -> None:
        for event in response.events:
            heard.put((type(event).__name__, event.key, event.value))

    number = client.add_watch_prefix_callback("watched/", hear)
    start = client.put("watched/a", "1").header.revision
    client.put("elsewhere", "1")
    client.put("watched/b", "2")
    client.delete("watched/a")
    tell("callback", [heard.get(timeout=WAIT_S) for _ in range(3)])
    client.cancel_watch(number)
    client.put("watched/c", "after the cancel")
    events, cancel = client.watch_prefix("watched/", start_revision=start)
    replayed = [next(events) for _ in range(4)]
    tell("replayed", [(type(event).__name__, event.key) for event in replayed])
    cancel()
    client.put("watched/d", "after the other cancel")
    tell("after the cancel", list(events))
    tell("callback after its cancel", heard.qsize())
    once = client.watch_once("watched/b", start_revision=start, timeout=int(WAIT_S))
    tell("once", once.key, once.value)
    tell_failure("nothing comes", lambda: client.watch_once("watched/b", timeout=1))
    response = client.watch_once_response("watched/b", start_revision=start, timeout=int(WAIT_S))
    tell("response", len(response.events), response.header.revision > start)


def compaction(client: Client) -> None:
    first = client.put("old", "1").header.revision
    last = client.put("old", "2").header.revision
    client.compact(last, physical=True)
    tell_failure("compact again", lambda: client.compact(first))
    tell_failure("compact the future", lambda: client.compact(last + 1000))
    events, _ = client.watch("old", start_revision=first)
    try:
        next(events)
    except etcd3.exceptions.RevisionCompactedError as error:
        tell("watch of the forgotten", error.compacted_revision - last)


def maintenance(client: Client) -> None:
    members = list(client.members)
    tell("members", len(members), [bool(member.id) for member in members])
    tell("names", [(len(member.peer_urls), len(member.client_urls)) for member in members])
    status = client.status()
    tell("status", status.version, status.db_size > 0, status.leader.id == members[0].id)
    tell("raft", status.raft_term > 0, status.raft_index > 0)
    tell("hash", isinstance(client.hash(), int))
    tell("defragment", client.defragment())
    snapshot = io.BytesIO()
    client.snapshot(snapshot)
    tell("snapshot", len(snapshot.getvalue()) > 1000)


def alarms(client: Client) -> None:
    (member,) = client.members
    tell("alarms", list(client.list_alarms()))
    raised = client.create_alarm(member_id=member.id)
    tell("raised", [(alarm.alarm_type, alarm.member_id == member.id) for alarm in raised])
    tell("of the member", len(list(member.active_alarms)))
    tell_failure("put without space", lambda: client.put("full", "1"))
    tell("get without space", client.get("full"))
    tell("disarmed", len(client.disarm_alarm(member_id=member.id)), list(client.list_alarms()))
    tell("put with space", client.put("full", "1").header.revision > 0)


def main() -> None:
    host, port = sys.argv[2], int(sys.argv[3])
    with etcd3.client(host, port, timeout=20) as client, etcd3.client(host, port) as other:
        keys(client)
        transactions(client)
        leases(client)
        expiry(client)
        locks(client, other)
        watches(client)
        compaction(client)
        maintenance(client)
        alarms(client)
    tell("done")


main()
