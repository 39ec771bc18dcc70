"""For all simulations: a planted bug must not stay for later tests, where it would be a mystery."""

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType

import pytest

Attributes = dict[tuple[str, str, str], object]


@pytest.fixture(autouse=True)
def no_patch_stays() -> Iterator[None]:
    """Compare the functions of the shipped code before and after a test."""
    before = _functions()
    yield
    after = _functions()
    changed = [".".join(key) for key, value in before.items() if after.get(key) is not value]
    assert not changed, f"patches were not taken back: {changed}"


def _functions() -> Attributes:
    found: Attributes = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("leasehold.") and isinstance(module, ModuleType):
            for key, value in vars(module).items():
                if isinstance(value, FunctionType):
                    found[name, "", key] = value
                elif isinstance(value, type) and value.__module__ == name:
                    found |= _methods(name, value)
    return found


def _methods(module: str, owner: type) -> Attributes:
    return {
        (module, owner.__name__, name): value
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType | property | classmethod | staticmethod)
    }
