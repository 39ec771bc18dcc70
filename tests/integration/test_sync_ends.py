"""How a program ends that uses `leasehold.sync`: at once, without a word, and without its leases.

Each program runs in a process of its own, with a real server here.
"""

import subprocess
import sys
from collections.abc import Iterator

import pytest

import leasehold.sync
from leasehold.testing import LocalServer
from tests.support.scripts import printed_by, run_script, until

CONNECT = """
import os, signal, sys, threading, time
import leasehold, leasehold.sync
client = leasehold.sync.connect(sys.argv[1])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def observer(server: LocalServer) -> Iterator[leasehold.sync.Client]:
    """Somebody who sees what others leave behind."""
    with leasehold.sync.connect(server.endpoint) as observer:
        yield observer
        assert observer.leases() == []


def test_what_is_left_open_is_closed_at_the_end(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
lease = client.lease(60)
client.kv.put("a", "b", lease=lease)
watch = client.kv.watch("a")
other = leasehold.sync.connect(sys.argv[1])
its_lease = other.lease(60)
print(len(client.leases()))
""",
        server.endpoint,
    )
    assert said == "2\n"
    assert observer.kv.get("a") is None


def test_nothing_is_left_by_an_error_that_nobody_handles(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    run = run_script(
        CONNECT
        + "with client, client.lease(60), client.kv.watch('a'):\n    raise KeyError('mine')",
        server.endpoint,
    )
    assert run.returncode == 1
    assert run.stderr.endswith("KeyError: 'mine'\n")
    assert run.stderr.count("Traceback") == 1


def test_nothing_is_left_by_an_error_outside_of_any_block(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    run = run_script(CONNECT + "lease = client.lease(60)\nraise KeyError('mine')", server.endpoint)
    assert run.returncode == 1
    assert run.stderr.count("Traceback") == 1
    assert run.stderr.endswith("KeyError: 'mine'\n")


def test_nothing_is_left_by_sys_exit_in_a_block(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    run = run_script(
        CONNECT + "with client, client.lease(60) as lease:\n    sys.exit(7)", server.endpoint
    )
    assert (run.returncode, run.stderr) == (7, "")


def test_an_interrupt_while_waiting_cancels_the_call(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
def interrupt():
    while watch._watch._watch._reader is None:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

with client.lease(60):
    watch = client.kv.watch("a")
    threading.Thread(target=interrupt).start()
    try:
        next(watch)
    except KeyboardInterrupt:
        print("interrupted")
    while watch._watch._watch._reader is not None:
        time.sleep(0.001)
    client.kv.put("a", "1")
    print(len(watch.next(timeout=30).events))
""",
        server.endpoint,
    )
    assert said == "interrupted\n1\n"


def test_an_interrupt_that_nobody_handles_ends_the_program(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    run = run_script(
        CONNECT
        + """
def interrupt():
    while not watch._watch._watch._reader:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

lease = client.lease(60)
watch = client.kv.watch("never")
threading.Thread(target=interrupt).start()
next(watch)
""",
        server.endpoint,
    )
    assert run.returncode == -2  # as a shell expects of a program that was interrupted
    assert run.stderr.count("Traceback") == 1
    assert run.stderr.endswith("KeyboardInterrupt\n")


def test_an_interrupt_while_a_lease_is_granted_leaves_none(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
import asyncio

engine = client._client.engine
grant = engine.grant
moments = []

async def granted_and_then_interrupted(ttl, *, lease=0):
    granted = await grant(ttl, lease=lease)
    moments.append("granted")
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(60)

engine.grant = granted_and_then_interrupted
try:
    client.lease(60)
except KeyboardInterrupt:
    print(moments)
give_up_at = time.monotonic() + 30
while client.leases() and time.monotonic() < give_up_at:
    time.sleep(0.01)
print(client.leases())
""",
        server.endpoint,
    )
    assert said == "['granted']\n[]\n"


def test_threads_that_are_no_daemons_may_go_on_after_the_main_thread(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
def work():
    threading.main_thread().join()
    with client.lease(60) as lease:
        client.kv.put("late", "1", lease=lease)
        print(client.kv.get("late").text)

threading.Thread(target=work).start()
""",
        server.endpoint,
    )
    assert said == "1\n"


def test_daemons_that_wait_do_not_keep_a_program_from_ending(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
lease = client.lease(60)
watch = client.kv.watch("a")
began = threading.Barrier(3)

def read():
    began.wait()
    for _ in watch:
        pass

def wait():
    began.wait()
    lease.lost.wait()

for target in (read, wait):
    threading.Thread(target=target, daemon=True).start()
began.wait()
while not watch._watch._watch._reader:
    time.sleep(0.001)
print("the end")
""",
        server.endpoint,
    )
    assert said == "the end\n"


def test_daemons_that_go_on_calling_end_with_the_program_without_a_word(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
began = threading.Barrier(5)

def call():
    began.wait()
    while True:
        client.kv.put("a", "b")

def read():
    began.wait()
    while True:
        for _ in client.kv.watch("a"):
            pass

for target in (call, call, read, read):
    threading.Thread(target=target, daemon=True).start()
began.wait()
leases = [client.lease(60) for _ in range(20)]
print("the end")
""",
        server.endpoint,
    )
    assert said == "the end\n"


def test_callbacks_that_hang_do_not_keep_a_program_from_ending(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
import logging
logging.disable()
began = threading.Semaphore(0)

def hang(*_):
    began.release()
    time.sleep(600)

healthy = client.lease(3, while_healthy=hang)
lease = client.lease(3, on_loss=hang)
client.revoke(lease.id)
began.acquire()
began.acquire()
print("the end")
""",
        server.endpoint,
    )
    assert said == "the end\n"


def test_what_comes_after_the_end_is_refused(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        """
import atexit, sys

@atexit.register
def late():
    for use in (lambda: client.kv.get("a"), lambda: leasehold.sync.connect(sys.argv[1])):
        try:
            use()
        except leasehold.Closed as error:
            print(error)
    client.close()
"""
        + CONNECT.replace("import leasehold, ", "import leasehold\nimport "),
        server.endpoint,
    )
    assert said.count("the interpreter is shutting down") == 2


def test_an_engine_in_the_process_is_closed_at_the_end_too(tmp_path: object) -> None:
    program = """
import sys
import leasehold.sync
client = leasehold.sync.open(sys.argv[1])
lease = client.lease(60)
print(client.kv.put("a", "b").revision)
"""
    assert printed_by(program, str(tmp_path)) == "2\n"
    assert printed_by(program, str(tmp_path)) == "3\n"


def test_a_server_that_does_not_answer_does_not_keep_a_program_from_ending() -> None:
    with LocalServer() as server:
        program = (
            CONNECT + "lease = client.lease(60)\nprint('granted', flush=True)\nsys.stdin.readline()"
        )
        process = subprocess.Popen(  # noqa: S603  our own lines
            [sys.executable, "-c", program, server.endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "granted\n"
        with server.frozen():
            _, said = process.communicate("\n", timeout=60)
        assert process.returncode == 0
        assert "Task was destroyed" not in said


def test_a_handler_of_a_signal_may_end_what_its_own_thread_waits_for(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
def stop(number, frame):
    client.close()

signal.signal(signal.SIGALRM, stop)
for wait in (lambda lease: lease.lost.wait(), lambda lease: list(client.kv.watch("a"))):
    lease = client.lease(60)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        print(wait(lease), lease.is_ended)
    except leasehold.Closed:
        print("closed", lease.is_ended)
    client = leasehold.sync.connect(sys.argv[1])
""",
        server.endpoint,
    )
    assert said == "False True\nclosed True\n"


def test_it_works_without_uvloop(server: LocalServer, observer: leasehold.sync.Client) -> None:
    said = printed_by(
        """
import sys
sys.modules["uvloop"] = None
"""
        + CONNECT.replace("import leasehold, ", "import leasehold\nimport ")
        + """
assert "asyncio" in type(leasehold.sync.loop_thread.loop_thread()._loop).__module__
lease = client.lease(60)
watch = client.kv.watch("a")
child = os.fork()
if not child:
    own = leasehold.sync.connect(sys.argv[1])
    own.kv.put("a", "1")
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(watch.next(timeout=30).events[0].key)
""",
        server.endpoint,
    )
    assert said == "0\nb'a'\n"


# Children.


def test_what_was_made_before_a_fork_is_refused_in_the_child(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
lease = client.lease(60)
watch = client.kv.watch("a")
txn = client.kv.txn()
uses = {
    "get": lambda: client.kv.get("a"),
    "lease": lambda: client.lease(1),
    "keep": lambda: client.keep(1),
    "leases": client.leases,
    "watch": lambda: client.kv.watch("a"),
    "commit": txn.commit,
    "enter": client.__enter__,
    "remaining": lambda: lease.remaining,
    "check": lease.check,
    "is_held": lambda: lease.is_held,
    "lost": lambda: bool(lease.lost),
    "lost.wait": lambda: lease.lost.wait(60),
    "jeopardy": lease.jeopardy.is_set,
    "renew": lease.renew,
    "end": lease.end,
    "enter lease": lease.__enter__,
    "put with lease": lambda: leasehold.Key("a").put("b", lease=lease),
    "next": lambda: next(watch),
    "next in time": lambda: watch.next(timeout=60),
    "ready": watch.ready,
    "request_progress": watch.request_progress,
    "enter watch": watch.__enter__,
}
child = os.fork()
if not child:
    began = time.monotonic()
    for name, use in uses.items():
        try:
            use()
        except (leasehold.Forked, leasehold.LeaseLost) as error:
            cause = error.__cause__ if isinstance(error, leasehold.LeaseLost) else error
            if not isinstance(cause, leasehold.Forked):
                print(name, "raises", repr(error))
        else:
            print(name, "works in a child")
    print("soon" if time.monotonic() - began < 5 else "late")
    client.close()
    watch.cancel()
    with leasehold.sync.connect(sys.argv[1]) as own, own.lease(60) as mine:
        own.kv.put("a", "of the child", lease=mine)
        print(own.kv.get("a").text)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
lease.check()
print([event.is_delete for _ in "12" for event in watch.next(timeout=30).events])
print(len(client.leases()))
""",
        server.endpoint,
    )
    assert said == "soon\nof the child\n3\n[False, True]\n1\n"


def test_a_child_that_leaves_a_block_of_its_parent_ends_nothing(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
with client, client.lease(60) as lease, client.kv.watch("a") as watch:
    child = os.fork()
    if not child:
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    lease.check()
    client.kv.put("a", "1", lease=lease)
    print(watch.next(timeout=30).events[0].key)
""",
        server.endpoint,
    )
    assert said == "5\nb'a'\n"


@pytest.mark.parametrize("leaves", ["returns", "raises", "exits"])
def test_a_child_of_multiprocessing_ends_its_own_leases(
    server: LocalServer, observer: leasehold.sync.Client, leaves: str
) -> None:
    run = run_script(
        CONNECT
        + """
import multiprocessing

def work(leaves):
    global of_child  # a handle that is collected before the end would be reported
    try:
        client.kv.get("a")
    except leasehold.Forked:
        print("forked", flush=True)
    own = leasehold.sync.connect(sys.argv[1])
    of_child = own.lease(60)
    own.kv.put("of a child", "1", lease=of_child)
    if leaves == "raises":
        raise KeyError("mine")
    if leaves == "exits":
        sys.exit(1)

lease = client.lease(60)
child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[2],))
child.start()
child.join()
print(child.exitcode)
lease.check()
print(client.kv.get("of a child"), len(client.leases()))
""",
        server.endpoint,
        leaves,
    )
    code = 0 if leaves == "returns" else 1
    assert run.stdout == f"forked\n{code}\nNone 1\n"
    assert run.returncode == 0
    assert run.stderr.count("Traceback") == (leaves == "raises")


def test_a_fork_while_other_threads_are_calling_harms_neither(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
stop = threading.Event()

def work(number):
    while not stop.is_set():
        client.kv.put(f"{number}", "1")

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for number in range(10):
    child = os.fork()
    if not child:
        with leasehold.sync.connect(sys.argv[1]) as own:
            own.kv.put(f"child {number}", "1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
print(client.kv.range("child", prefix=True, count_only=True).total)
""",
        server.endpoint,
    )
    assert said == "10\n"


def test_a_grandchild_can_have_a_client_too(
    server: LocalServer, observer: leasehold.sync.Client
) -> None:
    said = printed_by(
        CONNECT
        + """
def family(generation):
    own = leasehold.sync.connect(sys.argv[1])
    own.lease(60).detach()
    print(generation, len(own.leases()), flush=True)
    if generation < 3:
        child = os.fork()
        if not child:
            family(generation + 1)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0

family(1)
""",
        server.endpoint,
    )
    assert said == "1 1\n2 2\n3 3\n"
    until(lambda: observer.leases() == [])
