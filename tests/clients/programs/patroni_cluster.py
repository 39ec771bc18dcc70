"""What Patroni does with its `etcd3:` store, for two members. Run in Patroni's environment."""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from patroni.dcs import get_dcs

WAIT_S = 20.0
TTL_S = 3
logging.disable()


def tell(what: str, *outcome: object) -> None:
    print(what, *outcome, sep=": ", flush=True)


def store(name: str) -> Any:
    return get_dcs(
        {
            "namespace": "/service/",
            "scope": "batman",
            "name": name,
            "ttl": TTL_S,
            "loop_wait": 1,
            "retry_timeout": 3,
            "etcd3": {"host": f"{sys.argv[1]}:{sys.argv[2]}"},
        }
    )


def until(dcs: Any, condition: Callable[[Any], bool]) -> Any:
    """Watch as Patroni's loop does, until the cluster is as it should be."""
    give_up_at = time.monotonic() + WAIT_S
    while not condition(cluster := dcs.get_cluster()):
        assert time.monotonic() < give_up_at, cluster
        dcs.watch(None, 0.5)
    return cluster


def names(cluster: Any) -> list[str]:
    return sorted(member.name for member in cluster.members)


def leads(dcs: Any) -> bool:
    return bool(dcs.attempt_to_acquire_leader())


def main() -> None:
    first, second = store("first"), store("second")
    empty = first.get_cluster()
    tell("empty", empty.is_empty(), empty.initialize, empty.leader, names(empty))
    tell("initialize", bool(first.initialize(True, "4711")), bool(second.initialize(True, "4712")))
    tell("touch", first.touch_member({"role": "primary"}), second.touch_member({"role": "replica"}))
    tell("acquire", leads(first), leads(second))
    cluster = until(second, lambda now: now.leader is not None and len(now.members) == 2)
    tell("cluster", cluster.initialize, cluster.leader.name, names(cluster))
    tell("member", cluster.get_member("first").data["role"])
    tell("config", first.set_config_value(json.dumps({"ttl": 30})))
    tell("config seen", until(second, lambda now: now.config is not None).config.data)
    stale = second.set_config_value("{}", cluster.initialize)
    tell("config at another version", bool(stale))
    tell("update", bool(first.update_leader(first.get_cluster(), 100)))
    tell("status", until(second, lambda now: now.status.last_lsn == 100).status.last_lsn)
    tell("failover", bool(first.manual_failover("first", "second")))
    tell("failover seen", until(second, lambda now: now.failover).failover.candidate)
    leader = first.get_cluster().leader
    tell("step down", bool(first.delete_leader(leader)))
    until(second, lambda now: now.leader is None or not now.leader.name)
    tell("other leader", leads(second), leads(first))
    tell("keeps", bool(second.update_leader(second.get_cluster(), 200)))
    deadline = time.monotonic() + WAIT_S
    while "first" in names(second.get_cluster()):  # who does not refresh its lease is gone
        second.touch_member({"role": "primary"})
        second.update_leader(second.get_cluster(), 200)
        assert time.monotonic() < deadline
        second.watch(None, 0.5)
    tell("dead member", names(second.get_cluster()), second.get_cluster().leader.name)
    tell("dead leader", until(first, lambda now: not names(now)).leader)
    tell("taken over", leads(first))
    tell("cancel", first.cancel_initialization().get("deleted"))
    tell("delete", bool(first.delete_cluster()))
    tell("deleted", until(first, lambda now: now.is_empty()).is_empty())
    tell("done")


main()
