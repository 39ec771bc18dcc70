"""Which package of Leasehold may import which: dependencies go one way.

Imports under `TYPE_CHECKING` and inside functions count.
"""

import ast
from typing import Final

import pytest

from tests.support.source_imports import MODULES, imports_in, imports_of

TOP: Final = ("leasehold", "api", "errors", "clock", "pytest_plugin", "__main__")
"""The modules that do not belong to a package; `leasehold` is `__init__.py`."""

ALLOWED: Final[dict[str, str]] = {
    "basics": "",
    "errors": "basics",
    "clock": "basics",
    "keyspace": "basics errors",
    "leases": "basics errors clock",
    "http2": "basics errors",
    "wire": "",
    "grpc": "basics errors clock http2 wire",
    "journal": "basics errors keyspace wire",
    "http1": "basics http2 grpc",
    "store": "basics errors clock keyspace leases wire journal",
    "serving": "basics errors http2 grpc http1",
    "landlord": "basics errors clock keyspace leases wire grpc store serving",
    "engine": "basics errors clock keyspace journal store",
    "engine.remote": "basics errors clock keyspace leases wire grpc journal landlord engine",
    "fencing": "basics errors journal engine",
    "sessions": "basics errors clock keyspace leases engine",
    "locks": "basics errors clock keyspace leases engine fencing sessions",
    "services": (
        "basics errors clock keyspace leases wire grpc landlord engine engine.remote sessions"
    ),
    "events": "basics errors clock keyspace leases wire grpc serving landlord engine services",
    "renewal": (
        "basics errors clock keyspace leases wire grpc landlord engine engine.remote sessions "
        "services events"
    ),
    "registry": (
        "basics errors clock keyspace leases wire grpc http1 store serving landlord engine "
        "engine.remote sessions services events"
    ),
    "discovery": (
        "basics errors clock keyspace leases wire grpc serving landlord engine engine.remote "
        "sessions services events registry"
    ),
    "files": "basics errors clock keyspace wire journal engine sessions services",
    "admin": (
        "basics errors leases wire grpc engine engine.remote services events registry discovery"
    ),
    "server": (
        "basics errors clock keyspace leases http2 wire grpc journal http1 store serving landlord "
        "engine engine.remote sessions services events renewal registry discovery files admin"
    ),
    "client": (
        "basics errors clock keyspace wire grpc store engine engine.remote sessions locks events "
        "renewal registry discovery files admin"
    ),
    "api": (
        "basics errors clock keyspace leases store landlord engine fencing sessions locks events "
        "renewal registry discovery files admin client"
    ),
    "leasehold": "basics api",
    "sync": (
        "basics errors clock keyspace leases grpc store landlord engine fencing sessions locks "
        "events renewal registry discovery files admin client"
    ),
    "cli": (
        "basics errors clock keyspace leases wire grpc http1 store serving engine engine.remote "
        "fencing sessions locks events renewal registry discovery files admin server client "
        "leasehold"
    ),
    "testing": "basics errors engine engine.remote sessions files server client sync",
    "pytest_plugin": "basics leasehold sync testing",
    "__main__": "cli",
}
"""The packages and top-level modules, and what each may import besides itself.

Each imports only what stands above it. `engine.remote` counts as a package of its own: the other
modules of `engine` do not need a network.
"""

KNOWN_VIOLATIONS: Final[set[tuple[str, str]]] = set()
"""Imports that the table does not allow yet. The list only shrinks.

No import may be added here. A line whose import is gone must be removed.
"""


def _package(module: str) -> str:
    name = module.removeprefix("leasehold").removeprefix(".") or "leasehold"
    if name == "engine.remote" or name.startswith("engine.remote."):
        return "engine.remote"
    return name.split(".")[0]


def _violations(package: str) -> set[tuple[str, str]]:
    allowed = {package, *ALLOWED[package].split()}
    return {
        (module, imported)
        for module in MODULES
        if _package(module) == package
        for imported in imports_of(module)
        if imported.split(".")[0] == "leasehold" and _package(imported) not in allowed
    }


def test_every_module_is_in_a_package_of_the_table() -> None:
    assert {_package(module) for module in MODULES} == ALLOWED.keys()


def test_the_top_level_has_six_modules() -> None:
    folders = {_package(module) for module, path in MODULES.items() if "/" in _relative(path.parts)}
    assert ALLOWED.keys() - folders == set(TOP)


def _relative(parts: tuple[str, ...]) -> str:
    return "/".join(parts[len(MODULES["leasehold"].parent.parts) :])


def test_the_table_has_no_cycles() -> None:
    above: set[str] = set()
    for package, allowed in ALLOWED.items():
        assert set(allowed.split()) <= above, package
        above.add(package)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    new = _violations(package) - KNOWN_VIOLATIONS
    assert not new, "dependencies between packages go one way: see the table"


def test_a_known_violation_that_is_gone_is_removed_from_the_list() -> None:
    found = {each for package in ALLOWED for each in _violations(package)}
    assert found >= KNOWN_VIOLATIONS, f"remove {sorted(KNOWN_VIOLATIONS - found)}"


@pytest.mark.parametrize(
    "source",
    [
        "import leasehold.errors",
        "import leasehold.errors as ours",
        "from leasehold.errors import LeaseLost",
        "from leasehold import errors",
        "if TYPE_CHECKING:\n    from leasehold.errors import LeaseLost",
        "def load():\n    from leasehold import errors",
        "class C:\n    async def load(self):\n        import leasehold.errors",
        "importlib.import_module('leasehold.errors')",
    ],
)
def test_an_import_is_found_wherever_it_stands(source: str) -> None:
    assert set(imports_in(ast.parse(source))) == {"leasehold.errors"}
