"""Every loop that retries a failed call takes its pauses from `Backoff`.

Clients that have lost the same server must not retry in step, so a pause after a failure is random.
The test reads the source: it looks for loops that catch an exception and pause for a length that
was not returned by `Backoff.next_s`.
"""

import ast
from pathlib import Path
from typing import Final

import pytest

import leasehold

ROOT: Final = Path(leasehold.__file__).parent
PACKAGES: Final = (
    *("basics", "client", "engine", "fencing", "grpc", "http1", "http2"),
    *("locks", "serving", "sessions", "sync"),
    *("services", "events", "renewal", "registry", "discovery"),
)
"""Packages that make calls to a server."""


def unspread(source: str) -> list[str]:
    """Return the pauses in retry loops that do not come from `Backoff.next_s`."""
    found = []
    for loop in ast.walk(ast.parse(source)):
        if not isinstance(loop, ast.While | ast.For | ast.AsyncFor):
            continue
        inside = list(_inside(loop))
        if not any(isinstance(node, ast.ExceptHandler) for node in inside):
            continue
        drawn = {
            target.id
            for node in inside
            if isinstance(node, ast.Assign) and "next_s()" in ast.unparse(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in inside:
            if isinstance(node, ast.Call) and node.args and _is_pause(node):
                length = ast.unparse(node.args[0])
                if "next_s()" not in length and length not in drawn and length != "0":
                    found.append(ast.unparse(node))
    return found


def _inside(loop: ast.AST) -> list[ast.AST]:
    """Return the nodes of a loop, without inner loops and inner functions."""
    nodes: list[ast.AST] = []
    left = list(ast.iter_child_nodes(loop))
    while left:
        node = left.pop()
        nodes.append(node)
        if not isinstance(
            node, ast.While | ast.For | ast.AsyncFor | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            left.extend(ast.iter_child_nodes(node))
    return nodes


def _is_pause(call: ast.Call) -> bool:
    """Whether a call is a pause: a sleep, or a wait for anything else with a pause as its limit."""
    text = ast.unparse(call)
    return text.startswith("asyncio.sleep(") or (
        text.startswith(("asyncio.timeout(", "asyncio.wait_for(")) and "pause" in text
    )


@pytest.mark.parametrize(
    "path",
    [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_pauses_between_attempts_are_random(path: Path) -> None:
    assert unspread(path.read_text(encoding="utf-8")) == []


DOUBLING: Final = """
async def ask():
    pause_s = 0.05
    while True:
        try:
            return await call()
        except OSError:
            pass
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)
"""


def test_a_doubling_pause_is_found_and_a_random_one_is_not() -> None:
    assert unspread(DOUBLING) == ["asyncio.sleep(pause_s)"]
    assert unspread(DOUBLING.replace("sleep(pause_s)", "sleep(backoff.next_s())")) == []
