"""What users of tooz do, one line for each outcome. Run in the environment of tooz."""

import queue
import sys
import threading
import time
from collections.abc import Callable

from tenacity import RetryError
from tooz import ToozError, coordination

WAIT_S = 20.0
POLL_S = 0.1
LONG_S = 30
SHORT_S = 3
"""How long a member is one without a heartbeat: the others, and the one that dies."""


def tell(what: str, *outcome: object) -> None:
    print(what, *outcome, sep=": ", flush=True)


def locks(alice: coordination.CoordinationDriver, bob: coordination.CoordinationDriver) -> None:
    lock, rival = alice.get_lock(b"desk"), bob.get_lock(b"desk")
    tell("acquire", lock.acquire(), lock.acquired, rival.acquire(blocking=False))
    failure("contended", lambda: rival.acquire(blocking=1))
    tell("heartbeat of a lock", lock.heartbeat(), rival.heartbeat())
    won: queue.Queue[bool] = queue.Queue()
    waiter = threading.Thread(target=lambda: won.put(rival.acquire(blocking=WAIT_S)))
    waiter.start()
    tell("release", lock.release(), lock.release())
    tell("handed over", won.get(timeout=WAIT_S), lock.acquired, rival.acquired)
    waiter.join()
    tell("broken", lock.break_(), lock.acquire(blocking=False), rival.release())
    with bob.get_lock(b"another"):
        tell("in a block", alice.get_lock(b"another").acquire(blocking=False))
    tell("after the block", alice.get_lock(b"another").acquire(blocking=False))


def groups(alice: coordination.CoordinationDriver, bob: coordination.CoordinationDriver) -> None:
    group = b"readers"
    tell("create", alice.create_group(group).get(), alice.get_groups().get())
    failure("create again", lambda: bob.create_group(group).get())
    tell("join", alice.join_group(group, {"seat": 1}).get(), bob.join_group(group).get())
    failure("join again", lambda: bob.join_group(group).get())
    tell("members", sorted(alice.get_members(group).get()))
    tell("capabilities", bob.get_member_capabilities(group, b"alice").get())
    alice.update_capabilities(group, {"seat": 2}).get()
    tell("updated", bob.get_members_with_capabilities(group).get()[b"alice"])
    failure("delete with members", lambda: alice.delete_group(group).get())
    failure("unknown group", lambda: alice.get_members(b"nobody's").get())
    bob.leave_group(group).get()
    failure("leave again", lambda: bob.leave_group(group).get())
    tell("left", sorted(alice.get_members(group).get()))
    alice.leave_group(group).get()
    tell("delete", alice.delete_group(group).get(), alice.get_groups().get())


def deaths(url: str, alice: coordination.CoordinationDriver) -> None:
    """A member that beats no more leaves when its lease ends; who watches is told."""
    group, seen = b"living", []
    alice.create_group(group).get()
    alice.join_group(group).get()
    alice.watch_join_group(group, lambda event: seen.append(("joined", event.member_id)))
    alice.watch_leave_group(group, lambda event: seen.append(("left", event.member_id)))
    mortal = coordination.get_coordinator(f"{url}{SHORT_S}", b"mortal")
    mortal.start()
    mortal.join_group(group).get()
    until(alice, lambda: ("joined", b"mortal") in seen)
    tell("alive", sorted(alice.get_members(group).get()))
    until(alice, lambda: ("left", b"mortal") in seen)
    tell("dead", sorted(alice.get_members(group).get()), seen)


def until(beating: coordination.CoordinationDriver, condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not condition():
        beating.heartbeat()
        beating.run_watchers()
        assert time.monotonic() < give_up_at
        time.sleep(POLL_S)


def failure(what: str, do: Callable[[], object]) -> None:
    try:
        tell(what, do())
    except (ToozError, RetryError) as error:
        tell(what, type(error).__name__)


def main() -> None:
    url = f"etcd3+http://{sys.argv[1]}:{sys.argv[2]}?membership_timeout="
    alice = coordination.get_coordinator(f"{url}{LONG_S}", b"alice")
    bob = coordination.get_coordinator(f"{url}{LONG_S}", b"bob")
    alice.start()
    bob.start()
    tell("heartbeat", alice.heartbeat(), bob.heartbeat())
    locks(alice, bob)
    alice.heartbeat()
    bob.heartbeat()
    groups(alice, bob)
    deaths(url, alice)
    alice.stop()
    bob.stop()
    tell("done")


main()
