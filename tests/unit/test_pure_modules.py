"""Pure modules do no I/O, read no clock, draw no random number.

They are listed by name. What they import must be on the list as well, and the list only grows.
"""

import ast
import importlib
from typing import Final

import pytest

from tests.support.source_imports import MODULES, imports_of, tree_of

ALLOWED: Final = {
    "abc",
    "array",
    "bisect",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "errno",  # constants only
    "hashlib",
    "heapq",
    "inspect",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "sortedcontainers",
    "struct",
    "types",
    "typing",
    "weakref",
    "zlib",
}
"""What pure code may import. A module that is missing here must first be seen to be pure."""

READS_A_CLOCK: Final = {"now", "utcnow", "today"}

PURE: Final = (
    "leasehold.basics.callbacks",
    "leasehold.basics.durations",
    "leasehold.basics.histogram",
    "leasehold.basics.lease_ids",
    "leasehold.basics.rope",
    "leasehold.discovery",
    "leasehold.discovery.announced",
    "leasehold.discovery.discard_waits",
    "leasehold.discovery.registration",
    "leasehold.discovery.searches",
    "leasehold.discovery.state",
    "leasehold.engine.remote.send_ledger",
    "leasehold.errors",
    "leasehold.events",
    "leasehold.events.state",
    "leasehold.files",
    "leasehold.files.lease_manager",
    "leasehold.files.state",
    "leasehold.http2",
    "leasehold.http2.frames",
    "leasehold.http2.hpack",
    "leasehold.http2.hpack_tables",
    "leasehold.http2.inbound",
    "leasehold.http2.limits",
    "leasehold.http2.outbound",
    "leasehold.http2.stream",
    "leasehold.keyspace",
    "leasehold.keyspace.answer_size",
    "leasehold.keyspace.keyspace",
    "leasehold.keyspace.operations",
    "leasehold.keyspace.range_index",
    "leasehold.keyspace.ranges",
    "leasehold.keyspace.recent_changes",
    "leasehold.keyspace.transaction_rules",
    "leasehold.keyspace.watchers",
    "leasehold.leases",
    "leasehold.leases.expiry_queue",
    "leasehold.leases.holder_view",
    "leasehold.leases.lease_clock",
    "leasehold.leases.lease_codec",
    "leasehold.leases.lease_table",
    "leasehold.leases.policies",
    "leasehold.leases.renewal_plan",
    "leasehold.leases.renewal_times",
    "leasehold.locks",
    "leasehold.locks.lock_state",
    "leasehold.registry",
    "leasehold.registry.index",
    "leasehold.registry.state",
    "leasehold.renewal",
    "leasehold.renewal.state",
)
"""The pure modules. None may be removed; one that is renamed or merged keeps its place here."""


def _reachable(module: str) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.split(".")[0] == "leasehold":
            waiting.extend(imports_of(name))
    return seen - {module}


def test_the_modules_on_the_list_exist() -> None:
    assert set(PURE) <= MODULES.keys()
    assert list(PURE) == sorted(set(PURE))


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_reaches_only_pure_modules(module: str) -> None:
    for name in _reachable(module):
        root = name.split(".")[0]
        if root == "leasehold":
            assert name in PURE, name
        else:
            assert root in ALLOWED, f"{module} reaches {name}"


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_reads_no_clock_through_datetime(module: str) -> None:
    called = {
        node.func.attr
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & READS_A_CLOCK


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_nothing_by_name_at_run_time(module: str) -> None:
    names = {node.id for node in ast.walk(tree_of(module)) if isinstance(node, ast.Name)}
    assert not names & {"__import__", "importlib", "eval", "exec", "open", "print", "input"}


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_has_no_coroutines(module: str) -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in ast.walk(tree_of(module)) if isinstance(node, kinds)]


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_says_what_it_is_for(module: str) -> None:
    assert importlib.import_module(module).__doc__
