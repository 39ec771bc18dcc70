"""`leasehold.core`, `errors` and `lease_ids` do no I/O, read no clock, draw no random number."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold

PACKAGE = Path(leasehold.__file__).parent

ALLOWED = {
    "abc",
    "array",
    "bisect",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "heapq",
    "itertools",
    "math",
    "operator",
    "sortedcontainers",
    "struct",
    "types",
    "typing",
    "weakref",
    "zlib",
}
"""What pure code may import. A module that is missing here must first be seen to be pure."""

READS_A_CLOCK = {"now", "utcnow", "today"}


def _modules() -> list[str]:
    names = [f"leasehold.core.{path.stem}" for path in sorted((PACKAGE / "core").glob("*.py"))]
    return [*names, "leasehold.errors", "leasehold.lease_ids"]


def _tree(module: str) -> ast.Module:
    relative = module.removeprefix("leasehold.").replace(".", "/")
    return ast.parse((PACKAGE / f"{relative}.py").read_text(encoding="utf-8"))


def _imports(module: str) -> Iterator[str]:
    """Every module that `module` imports, wherever in it the import stands."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import, which this test cannot follow"
            assert node.module is not None
            yield node.module


def _reachable(module: str) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.split(".")[0] == "leasehold":
            waiting.extend(_imports(name))
    return seen - {module}


def test_the_modules_of_core_are_found() -> None:
    assert {"leasehold.core.table", "leasehold.core.lease_clock", "leasehold.errors"} <= set(
        _modules()
    )


@pytest.mark.parametrize("module", _modules())
def test_a_pure_module_reaches_only_pure_modules(module: str) -> None:
    for name in _reachable(module):
        root = name.split(".")[0]
        if root == "leasehold":
            assert name in _modules(), name
        else:
            assert root in ALLOWED, f"{module} reaches {name}"


@pytest.mark.parametrize("module", _modules())
def test_a_pure_module_reads_no_clock_through_datetime(module: str) -> None:
    called = {
        node.func.attr
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & READS_A_CLOCK


@pytest.mark.parametrize("module", _modules())
def test_a_pure_module_imports_nothing_by_name_at_run_time(module: str) -> None:
    names = {node.id for node in ast.walk(_tree(module)) if isinstance(node, ast.Name)}
    assert not names & {"__import__", "importlib", "eval", "exec", "open", "print", "input"}


@pytest.mark.parametrize("module", _modules())
def test_a_pure_module_has_no_coroutines(module: str) -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in ast.walk(_tree(module)) if isinstance(node, kinds)]


@pytest.mark.parametrize("module", _modules())
def test_a_pure_module_says_what_it_is_for(module: str) -> None:
    assert importlib.import_module(module.removesuffix(".__init__")).__doc__
