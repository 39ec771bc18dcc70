"""The imports in the source of Leasehold, for tests of its structure."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import leasehold

PACKAGE: Final = Path(leasehold.__file__).parent


def modules() -> dict[str, Path]:
    """Return all modules of Leasehold by name. A package has the name of its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["leasehold", *path.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES: Final = modules()


def tree_of(module: str) -> ast.Module:
    """Parse the source of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports_of(module: str) -> set[str]:
    """Return the modules that a module imports, wherever in it the import stands."""
    return set(imports_in(tree_of(module)))


def imports_in(tree: ast.Module) -> Iterator[str]:
    """Return the imported modules, with those under `TYPE_CHECKING` and in functions.

    `from package import module` imports the module. A name that is imported from a module, and a
    name that is given to `import_module`, count as well.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write absolute imports: tests cannot follow relative ones"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value
