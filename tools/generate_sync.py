"""Generate `src/leasehold/sync/generated/` from the async classes of the client.

Run as `python tools/generate_sync.py`, or `make sync`, after a change to a public method, parameter
or docstring of a class that `sync_twins` names, and commit what it writes. With `--check` it writes
nothing, and fails if a file is not current: `make check` does that.

Each method of a blocking class has the name, the parameters and the docstring of the async one. How
it works follows from what the async method is and returns:

- An async method is run on the loop's thread, and waited for.
- A `Pending` result is awaited there, and its blocking counterpart returned.
- A handle, such as a lock, is wrapped in its blocking counterpart.
- A lease of a landlord that is returned is wrapped as well.
- A landlord, which is not async, is called in the caller's thread, under a lock.
- Anything else, such as a property, is answered in the caller's thread.

What follows another rule is written by hand, in a base class in `src/leasehold/sync/`.
"""

import argparse
import ast
import builtins
import copy
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if not __package__:  # run as a program
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.async_source import (
    ROOT,
    SRC,
    Function,
    Member,
    Source,
    class_node,
    fail,
    members_of,
    read_module,
)
from tools.sync_twins import (
    ARGUMENTS,
    CALLBACKS,
    ENDED_BY,
    HELPERS,
    MODULES,
    PHRASES,
    RENAMED,
    TWINS,
    UNWANTED,
    Module,
    Twin,
    file_of,
)

GENERATED: Final = SRC / "leasehold" / "sync" / "generated"
PACKAGE: Final = (
    '"""Blocking classes that tools/generate_sync.py has made from the async ones."""\n'
)
LINE_LENGTH: Final = 100


# Types and arguments.


class _Blocking(ast.NodeTransformer):
    """Replaces async types by blocking ones."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(RENAMED.get(node.id, node.id))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str):  # a type that is defined later
            return ast.Constant(_type(ast.parse(node.value, mode="eval").body))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match ast.unparse(node.value):
            case "Pending":
                return self.visit(node.slice)  # type: ignore[no-any-return]
            case "Literal":
                return node
        return self.generic_visit(node)


def _type(annotation: ast.expr | None) -> str:
    return "None" if annotation is None else ast.unparse(_Blocking().visit(annotation))


def _names(annotation: str) -> set[str]:
    """Return the names in a type."""
    return {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}


def _parameters(node: Function) -> list[ast.arg]:
    if node.args.posonlyargs or node.args.kwarg is not None:
        fail(f"{node.name} has positional-only parameters or **: there is no rule for them yet")
    varied = [] if node.args.vararg is None else [node.args.vararg]
    return [*node.args.args, *varied, *node.args.kwonlyargs]


def _signature(node: Function, returns: str) -> str:
    """Return the line that begins the blocking function."""
    for parameter in _parameters(node):
        if parameter.annotation is not None:
            parameter.annotation = _Blocking().visit(parameter.annotation)
    return f"def {node.name}({ast.unparse(node.args)}) -> {returns}:"


def _arguments(node: Function, changed: Mapping[str, str]) -> str:
    """Return the arguments of the async call; parameters that are changed to "" are left out."""
    passed = []
    for parameter in _parameters(node):
        value = changed.get(parameter.arg, parameter.arg)
        if parameter.arg == "self" or not value:
            continue
        if parameter is node.args.vararg:
            passed.append(f"*{value}")
        elif parameter in node.args.kwonlyargs:
            passed.append(f"{parameter.arg}={value}")
        else:
            passed.append(value)
    return ", ".join(passed)


# Docstrings.


_used_phrases: set[str] = set()


def _adapt(doc: str, returns: str, where: str) -> list[str]:
    """Return the paragraphs of an async docstring in the words of blocking code."""
    text = "\n\n".join(
        paragraph if _is_code(paragraph) else " ".join(paragraph.split())
        for paragraph in doc.split("\n\n")
    )
    for phrase, other in PHRASES.items():
        if phrase in text:
            _used_phrases.add(phrase)
            text = text.replace(phrase, other.replace("{ended_by}", ENDED_BY.get(returns, "")))
    if unwanted := UNWANTED.search(text):
        fail(f"the docstring of {where} has {unwanted[0]!r}: add a line to PHRASES")
    return text.split("\n\n")


def _is_code(paragraph: str) -> bool:
    return any(line.startswith(" ") for line in paragraph.splitlines())


def _docstring(doc: str, returns: str, where: str, indent: int) -> str:
    if not doc:
        fail(f"{where} has no docstring")
    width = LINE_LENGTH - indent
    summary, *others = _adapt(doc, returns, where)
    wrapped = [each if _is_code(each) else textwrap.fill(each, width) for each in others]
    if not wrapped and len(summary) + 6 <= width:
        return f'"""{summary}"""'
    return '"""' + "\n\n".join([summary, *wrapped]) + '\n"""'


# Writing the blocking modules.


@dataclass(frozen=True)
class Method:
    """An async method or property, and the class it is generated for."""

    member: Member
    node: Function
    class_name: str
    twin: Twin

    @property
    def where(self) -> str:
        """Its full name."""
        return f"{self.member.source.name}.{self.class_name}.{self.node.name}"

    def text(self) -> str:
        """Return its blocking counterpart."""
        annotation = _type(self.node.returns)
        returns = annotation.strip("'")
        body = list(self._body(returns))
        if self.twin.is_locked:
            body = ["self._check_process()", "with self._lock:", *map(_indented, body)]
        lines = [
            *("@property" for each in self.node.decorator_list if ast.unparse(each) == "property"),
            _signature(self.node, "Self" if returns == self.class_name else annotation),
            *map(_indented, self._doc(returns)),
            *map(_indented, body),
        ]
        return "\n".join(lines)

    def _doc(self, returns: str) -> Iterator[str]:
        """Return the docstring; a constructor may have none, if that of the class describes it."""
        if self.member.doc or self.node.name != "__init__":
            yield _docstring(self.member.doc, returns, self.where, 8)

    def _body(self, returns: str) -> Iterator[str]:
        given = {each.arg for each in _parameters(self.node)}
        yield from (
            f'check_plain_callback({name}, "{name}")' for name in CALLBACKS if name in given
        )
        is_pending = ast.unparse(self.node.returns or ast.Constant(None)).startswith("Pending[")
        if is_pending and returns == "HeldLease":
            yield from self._lease(given)
        elif is_pending and returns == "RenewalSet":
            yield f"return RenewalSet(self._thread, obtain_set(self._thread, {self._call()}))"
        elif is_pending and returns == "FileWriter":
            yield f"return open_writer(FileWriter, self._thread, {self._call()})"
        elif is_pending:
            yield from self._guard(given, returns)
        elif same := self.twin.same_as.get(self.node.name):
            yield f"self.{same}({_arguments(self.node, {})})"
        elif self.node.name == "__init__":
            call = f"on_loop.{self.class_name}({self._passed()})"
            yield f"super().__init__(lambda: {call})"
        elif returns == self.class_name:
            yield self._call()
            yield "return self"
        elif returns in {"Mailbox", "Registration", "DiscoveryRegistration"}:
            yield f"return {returns}(self._thread, {self._answer()})"
        elif returns == "Lease":
            thread = "" if self.twin.is_locked else ", self._thread"
            yield f"return Lease({self._answer()}{thread})"
        elif returns == "list[Lease]":
            yield f"return [Lease(lease, self._thread) for lease in {self._answer()}]"
        elif returns == "Watch":
            yield f"return begin_watch(self._thread, lambda: {self._call()})"
        elif returns in TWINS and isinstance(self.node, ast.FunctionDef):
            yield from self._handle(given, returns)
        elif _names(returns) & {*TWINS}:
            fail(f"{self.where} returns {returns}: there is no rule for that yet")
        else:
            yield self._answer() if returns == "None" else f"return {self._answer()}"

    def _answer(self) -> str:
        """Return the expression that waits for the async method, or reads the async property."""
        if isinstance(self.node, ast.AsyncFunctionDef):
            undo = self.twin.undo.get(self.node.name)
            end = f", undo={undo})" if undo else ")"
            return f"self._thread.run({self._deferred()}{end}"
        if self.node.decorator_list:
            return f"{self.twin.on_loop}.{self.node.name}"
        return f"self._run({self._deferred()})" if self.twin.all_on_loop else self._call()

    def _deferred(self) -> str:
        """Return a function that makes the async call."""
        call = self._call()
        return call.removesuffix("()") if call.endswith("()") else f"lambda: {call}"

    def _call(self, **changed: str) -> str:
        """Return the call of the async method."""
        return f"{self.twin.on_loop}.{self.node.name}({self._passed(**changed)})"

    def _passed(self, **changed: str) -> str:
        """Return the arguments of the async call."""
        for parameter in _parameters(self.node):
            annotation = _type(parameter.annotation)
            if annotation in ARGUMENTS:
                changed[parameter.arg] = ARGUMENTS[annotation].format(parameter.arg)
            elif _names(annotation) & {*TWINS} and parameter.arg not in CALLBACKS:
                fail(f"{self.where}: there is no rule yet for parameter {parameter.arg}")
        return _arguments(self.node, changed)

    def _lease(self, given: set[str]) -> Iterator[str]:
        """Make a lease: its blocking object first, so that it receives every callback."""
        cancels = "cancel_on_loss" if "cancel_on_loss" in given else "False"
        call = self._call(
            while_healthy="check_in_thread(while_healthy)",
            on_jeopardy="jeopardy_callback",
            on_loss="loss_callback",
            cancel_on_loss="",
        )
        yield "self._thread.check()"
        yield f"twin = HeldLease(self._thread, on_jeopardy, on_loss, cancel_on_loss={cancels})"
        yield "jeopardy_callback, loss_callback = twin.callbacks()"
        yield f"return twin.{self.twin.undo[self.node.name]}({call})"

    def _guard(self, given: set[str], returns: str) -> Iterator[str]:
        """Acquire a guard; a handle that was made with `on_loss` has it."""
        prefix = "" if "on_loss" in given else "self._"
        call = self._call(on_loss="report_loss", cancel_on_loss="")
        yield f"pending = {call}"
        yield (
            f"return obtain(self._thread, pending, {prefix}on_loss, "
            f"cancel_on_loss={prefix}cancel_on_loss, kind={returns})"
        )

    def _handle(self, given: set[str], returns: str) -> Iterator[str]:
        call = self._call(on_loss="report_loss", cancel_on_loss="")
        yield "self._thread.check_process()"
        if "on_loss" in given:
            yield f"handle = {call}"
            yield f"return {returns}(self._thread, handle, on_loss, cancel_on_loss=cancel_on_loss)"
        else:
            yield f"return {returns}(self._thread, {call})"


def _class(source: Source, name: str, twin: Twin) -> str:
    node = class_node(source, name)
    members = members_of(source, name, twin.base)
    for each in (*twin.by_hand, *twin.internal, *twin.only, *twin.attributes):
        if each not in members:
            fail(f"{source.name}.{name} has no {each}: change tools/sync_twins.py")
    excluded = {*twin.by_hand, *twin.internal}
    wanted = [members[each] for each in twin.only or members if each not in excluded]
    doc = _docstring(ast.get_docstring(node) or "", name, f"{source.name}.{name}", 4)
    parts = [f"class {name}({twin.base}):" if twin.base else f"class {name}:", _indented(doc)]
    if any(ast.unparse(each).startswith("__slots__") for each in node.body):
        parts.append(_indented(f"__slots__ = {() if twin.base else ('_on_loop', '_thread')}"))
    if twin.narrows:
        parts.append(_indented(f"{twin.on_loop.removeprefix('self.')}: on_loop.{name}"))
    made = [member for member in wanted if member.node is None and member.kind in TWINS]
    if twin.constructor_omits is not None:
        parts.append(_indented(_constructor(source, node, twin)))
    elif made or not twin.base:
        parts.append(_indented(_init(name, twin, made)))
    for member in wanted:
        if member.node is not None:
            parts.append(_indented(Method(member, member.node, name, twin).text()))
        elif member not in made:
            parts.append(_indented(_property(member, name, twin)))
    return "\n\n".join(parts)


def _init(name: str, twin: Twin, made: list[Member]) -> str:
    lines = [f"def __init__(self, thread: LoopThread, twin: on_loop.{name}) -> None:"]
    if twin.base:
        lines.append("    super().__init__(thread, twin)")
    else:
        lines += ["    self._thread = thread", "    self._on_loop = twin"]
    for member in made:
        lines.append(f"    self.{member.name} = {member.kind}(thread, twin.{member.name})")
        lines.append(f'    """{member.doc}"""')
    return "\n".join(lines)


def _constructor(source: Source, node: ast.ClassDef, twin: Twin) -> str:
    """Return the constructor of a class that programs make: it makes the async object."""
    init = next(
        each for each in node.body if isinstance(each, Function) and each.name == "__init__"
    )
    init = copy.deepcopy(init)
    kept = [
        (parameter, default)
        for parameter, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
        if parameter.arg not in (twin.constructor_omits or ())
    ]
    init.args.kwonlyargs = [parameter for parameter, _ in kept]
    init.args.kw_defaults = [default for _, default in kept]
    member = Member(source, init.name, init, ast.get_docstring(init) or "")
    return Method(member, init, node.name, twin).text()


def _property(member: Member, name: str, twin: Twin) -> str:
    where = f"{member.source.name}.{name}.{member.name}"
    returns = twin.attributes.get(member.name) or member.annotation
    if not returns:
        fail(f"{where} is an attribute without a type: declare it, or change tools/sync_twins.py")
    return (
        f"@property\ndef {member.name}(self) -> {returns}:\n"
        f"    {_docstring(member.doc, '', where, 8)}\n"
        f"    return {twin.on_loop}.{member.name}"
    )


def _indented(text: str) -> str:
    return textwrap.indent(text, " " * 4)


def _function(source: Source, name: str) -> str:
    node = source.definitions.get(name)
    if not isinstance(node, Function):
        fail(f"{source.name} has no function {name}: change tools/sync_twins.py")
    returns = _type(node.returns)
    where = f"{source.name}.{name}"
    call = f"on_loop.{name}({_arguments(node, {})})"
    return "\n".join(
        [
            _signature(node, returns),
            _indented(_docstring(ast.get_docstring(node) or "", returns, where, 4)),
            f"    return make_client({returns}, {call})",
        ]
    )


def _alias(source: Source, name: str) -> str:
    if isinstance(source.definitions.get(name), ast.ClassDef):
        return ast.unparse(source.definitions[name])
    if name not in source.docs:
        fail(f"{source.name} has no type alias {name}: change tools/sync_twins.py")
    return f'{ast.unparse(source.definitions[name])}\n"""{source.docs[name]}"""'


def _imports(sources: list[Source], tree: ast.Module) -> Iterator[str]:
    """Return an import for each name that is used and not defined in a module."""
    package, _, module = sources[0].name.rpartition(".")
    nodes = list(ast.walk(tree))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for name in sorted({node.id for node in names} - defined - {*dir(builtins)}):
        if name == "on_loop":
            yield f"from {package} import {module} as on_loop"
        elif name in TWINS or name in HELPERS:
            yield f"from {TWINS.get(name) or HELPERS[name]} import {name}"
        else:
            yield _find_import(sources, name)


def _find_import(sources: list[Source], name: str) -> str:
    for source in sources:
        if name in source.imports:
            return source.imports[name]
        if name in source.definitions:
            return f"from {source.name} import {name}"
    return fail(f"{sources[0].name} does not import {name}")


def _module(name: str, module: Module) -> str:
    source = read_module(name)
    parts = [_alias(source, alias) for alias in module.aliases]
    sources = [source]
    for class_name, twin in module.classes.items():
        parts.append(_class(source, class_name, twin))
        sources += [member.source for member in members_of(source, class_name, twin.base).values()]
    parts += [_function(source, function) for function in sorted(module.functions)]
    body = "\n\n\n".join(parts)
    path = f"{name.removeprefix('leasehold.').replace('.', '/')}.py"
    head = f"# Generated by tools/generate_sync.py from {path}. Do not edit: `make sync`\n"
    doc = f'"""`{name}` for blocking code."""\n\n'
    imports = "\n".join(_imports(sources, ast.parse(body)))
    return f"{head}{doc}{imports}\n\n\n{body}\n"


def _format(texts: Mapping[str, str]) -> dict[str, str]:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        fail("ruff is not installed: see `make check`")
    settings = ["--config", str(ROOT / "pyproject.toml")]
    settings += ["--config", "lint.isort.known-first-party = ['leasehold']"]
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts.items():
            Path(scratch, name).write_text(text, "utf-8")
        for command in (["check", "--select", "I", "--fix-only"], ["format"]):
            arguments = [ruff, *command, *settings, "--quiet", "--no-cache", scratch]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode:
                fail(f"ruff has failed: {done.stdout}{done.stderr}")
        return {name: Path(scratch, name).read_text("utf-8") for name in texts}


def generate() -> dict[str, str]:
    """Make all modules: text by file name."""
    _used_phrases.clear()
    read_module.cache_clear()
    texts = {f"{file_of(name)}.py": _module(name, module) for name, module in MODULES.items()}
    if unused := [phrase for phrase in PHRASES if phrase not in _used_phrases]:
        fail(f"no docstring has {unused[0]!r}: remove it from PHRASES")
    return _format({"__init__.py": PACKAGE, **texts})


def main() -> None:
    """Write all files in place; with `--check`, only compare them."""
    parser = argparse.ArgumentParser(description="Generate src/leasehold/sync/generated/.")
    parser.add_argument("--check", action="store_true", help="fail if a file is not current")
    is_check = parser.parse_args().check
    texts = generate()
    committed = {path.name: path.read_text("utf-8") for path in GENERATED.glob("*.py")}
    changed = sorted(
        name for name in {*texts, *committed} if texts.get(name) != committed.get(name)
    )
    if is_check and changed:
        fail(f"{', '.join(changed)} in sync/generated/ not current: run `make sync`")
    for name in changed:
        if name in texts:
            (GENERATED / name).write_text(texts[name], "utf-8")
        else:
            (GENERATED / name).unlink()


if __name__ == "__main__":
    main()
