"""Async modules as `generate_sync` reads them: classes, public members, imports."""

import ast
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from tools.sync_twins import RENAMED

ROOT: Final = Path(__file__).resolve().parents[1]
SRC: Final = ROOT / "src"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def fail(text: str) -> NoReturn:
    """End the program with an error."""
    sys.exit(f"generate_sync: {text}")


@dataclass(frozen=True)
class Source:
    """An async module: its definitions and imports by name."""

    name: str
    definitions: Mapping[str, ast.stmt]
    imports: Mapping[str, str]
    """The statement that imports each name."""
    docs: Mapping[str, str]
    """The docstring of each type alias."""


@cache
def read_module(name: str) -> Source:
    """Read a module of `leasehold`."""
    path = SRC.joinpath(*name.split(".")).with_suffix(".py")
    definitions: dict[str, ast.stmt] = {}
    imports: dict[str, str] = {}
    docs: dict[str, str] = {}
    nodes = ast.parse(path.read_text("utf-8")).body
    for node, after in itertools.pairwise([*nodes, ast.Pass()]):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    imports[alias.asname or alias.name] = ast.unparse(ast.Import([alias]))
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    statement = ast.ImportFrom(module, [alias], 0)
                    imports[alias.asname or alias.name] = ast.unparse(statement)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                definitions[node.name] = node
            case ast.Assign(targets=[ast.Name(id=target)]):  # such as a type variable
                definitions[target] = node
            case ast.AnnAssign(target=ast.Name(id=target)):
                definitions[target] = node
                docs[target] = _string(after)
    return Source(name, definitions, imports, docs)


@dataclass(frozen=True)
class Member:
    """A public method, property or attribute of an async class."""

    source: Source
    name: str
    node: Function | None
    """None for an attribute that `__init__` sets."""
    doc: str
    kind: str = ""
    """The class of an attribute, if `__init__` makes it by calling one."""
    annotation: str = ""
    """The type of an attribute, if `__init__` declares it."""


def class_node(source: Source, name: str) -> ast.ClassDef:
    """Return the definition of a class."""
    node = source.definitions.get(name)
    if not isinstance(node, ast.ClassDef):
        fail(f"{source.name} has no class {name}: change tools/sync_twins.py")
    return node


def members_of(source: Source, name: str, twin_base: str = "") -> dict[str, Member]:
    """Return the public members of a class, and of its base classes.

    Not those of the class whose counterpart is `twin_base`, the base class of the blocking one.
    """
    node = class_node(source, name)
    members: dict[str, Member] = {}
    for base in map(ast.unparse, node.bases):
        if RENAMED.get(base, base) != twin_base:
            statement = source.imports.get(base, "")
            origin = (
                read_module(statement.split()[1]) if statement.startswith("from lease") else source
            )
            if base in origin.definitions:
                members |= members_of(origin, base)
    return members | {member.name: member for member in _own_members(source, node)}


def _own_members(source: Source, node: ast.ClassDef) -> Iterator[Member]:
    for child in node.body:
        if isinstance(child, Function):
            if child.name == "__init__":
                yield from _attributes(source, child)
            elif not child.name.startswith("_"):
                yield Member(source, child.name, child, ast.get_docstring(child) or "")


def _attributes(source: Source, init: Function) -> Iterator[Member]:
    for statement, after in itertools.pairwise([*init.body, ast.Pass()]):
        match statement:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value
            ) if name[0] != "_":
                is_made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
                kind = ast.unparse(value).split("(")[0] if is_made else ""
                yield Member(source, name, None, _string(after), kind)
            case ast.AnnAssign(target=ast.Attribute(attr=name)) if name[0] != "_":
                yield Member(
                    source, name, None, _string(after), "", ast.unparse(statement.annotation)
                )


def _string(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""
