"""The names that users import, and the tree of errors as errors.py draws it."""

import builtins
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

import leasehold
from leasehold import errors
from leasehold.errors import LeaseholdError, Status

ALIASES = {"Duration", "DurationLike", "End", "Listener", "Outcome", "Requested"}
"""Names for unions: they cannot have a docstring at run time."""


def _isort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, as ruff sorts `__all__`."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


def _public_objects() -> list[str]:
    return [name for name in leasehold.__all__ if name not in ALIASES]


def test_all_is_sorted_and_has_no_name_twice() -> None:
    assert leasehold.__all__ == sorted(set(leasehold.__all__), key=_isort_key)


@pytest.mark.parametrize("name", leasehold.__all__)
def test_each_name_in_all_can_be_imported(name: str) -> None:
    assert getattr(leasehold, name) is not None


def test_all_is_complete() -> None:
    imported = {
        name
        for name, value in vars(leasehold).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert imported == {"open", *leasehold.__all__}


@pytest.mark.parametrize("module", ["leasehold", "leasehold.sync"])
def test_importing_everything_replaces_no_builtin(module: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {module} import *", names)  # noqa: S102  as users write it
    assert "connect" in names
    replaced = set(names) & set(vars(builtins)) - {"__builtins__"}
    assert replaced == set()
    assert callable(importlib.import_module(module).open)


@pytest.mark.parametrize("name", _public_objects())
def test_each_public_object_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(leasehold, name))


@pytest.mark.parametrize("name", _public_objects())
def test_each_public_method_has_a_docstring(name: str) -> None:
    value = getattr(leasehold, name)
    if not inspect.isclass(value):
        assert value.__doc__
        return
    for attribute in vars(value):
        member = inspect.getattr_static(value, attribute)
        if not attribute.startswith("_") and (
            isinstance(member, property) or inspect.isfunction(member)
        ):
            assert inspect.getdoc(getattr(value, attribute)), f"{name}.{attribute}"


def test_the_version_is_one_that_packaging_accepts() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", leasehold.__version__)


DRAWN = re.compile(r"^(?P<branch>[ │├└─]{4,})(?P<name>[A-Z]\w+)(?: +(?P<status>[A-Z_]+) )?")


def _drawn_tree() -> Iterator[tuple[str, str | None, str | None]]:
    """Name, status and parent, as drawn: a parent is the last line that is less indented."""
    assert errors.__doc__ is not None
    above: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        found = DRAWN.match(line)
        if found is not None:
            depth = len(found["branch"])
            above = [each for each in above if each[0] < depth]
            yield found["name"], found["status"], above[-1][1] if above else None
            above.append((depth, found["name"]))


def _all_errors() -> set[type[LeaseholdError]]:
    found: set[type[LeaseholdError]] = set()
    waiting = [LeaseholdError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == errors.__name__:
            found.add(kind)
            waiting.extend(kind.__subclasses__())
    return found


def test_the_drawn_tree_is_the_real_tree() -> None:
    drawn = {name: status for name, status, _ in _drawn_tree()}
    real: dict[str, str | None] = {kind.__name__: kind.status.name for kind in _all_errors()}
    real["LeaseholdError"] = None  # the base has no meaning, so no status is drawn for it
    assert drawn == real


def test_each_error_hangs_where_it_is_drawn() -> None:
    drawn = {name: parent for name, _, parent in _drawn_tree()}
    real: dict[str, str | None] = {
        kind.__name__: kind.__bases__[0].__name__ for kind in _all_errors()
    }
    real["LeaseholdError"] = None
    assert drawn == real


def test_each_error_has_exactly_one_status_of_its_own() -> None:
    for kind in _all_errors() - {LeaseholdError}:
        assert isinstance(vars(kind)["status"], Status), kind


def test_the_note_in_the_tree_is_true_that_a_lost_connection_is_a_builtin_connection_error() -> (
    None
):
    assert issubclass(leasehold.ConnectionLost, ConnectionError)


def test_every_error_of_the_tree_is_public() -> None:
    assert {kind.__name__ for kind in _all_errors()} <= set(leasehold.__all__)
