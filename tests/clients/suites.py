"""Test suites that clients publish, run as they are: what passes on etcd has to pass on ours."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.clients.running import pair, run_python, tail
from tests.support.servers import RunningServer
from tools import client_environments

PASSED: Final = "passed"
SKIPPED: Final = "skipped: "
PLUGINS: Final = Path(__file__).parent / "plugins"
_reports: Final = count()

Outcomes = dict[str, str]  # by test: PASSED, or what else became of it


@dataclass(frozen=True)
class Suite:
    """A published suite, and what is known about it beforehand.

    `parts` are arguments for pytest: tests that may run at the same time, each part on servers of
    its own, because these tests clear the whole keyspace and sleep for most of their time.
    `left_out` says why tests are not run, `not_ours` what those tell that fail on ours only;
    `skips` are the reasons for which tests may skip themselves, on both servers alike.
    """

    environment: str
    parts: tuple[tuple[str, ...], ...]
    variables: Callable[[RunningServer], dict[str, str]]
    tests: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    not_ours: Mapping[str, str] = field(default_factory=dict)
    skips: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()

    @property
    def expected(self) -> set[str]:
        """What may become of a test on etcd."""
        return {PASSED, *(SKIPPED + reason for reason in self.skips)}


def outcomes(suite: Suite, directory: Path) -> tuple[Outcomes, Outcomes]:
    """Run all parts on both servers."""

    def run(number: int) -> tuple[Outcomes, Outcomes]:
        where = directory / f"part-{number}"
        with pair(where) as servers:
            return servers.both(lambda server: _run_part(suite, suite.parts[number], server, where))

    with ThreadPoolExecutor(max_workers=len(suite.parts)) as pool:
        parts = list(pool.map(run, range(len(suite.parts))))
    real: Outcomes = {}
    ours: Outcomes = {}
    for of_real, of_ours in parts:
        real.update(of_real)
        ours.update(of_ours)
    return real, ours


def _run_part(
    suite: Suite, selection: tuple[str, ...], server: RunningServer, directory: Path
) -> Outcomes:
    report = directory / f"report-{next(_reports)}.xml"
    # Without symbolic links: pytest resolves its own directory, and names tests by the difference.
    sources = client_environments.sources_of(suite.environment).resolve()
    cwd = sources if sources.is_dir() else directory
    arguments = ["-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *selection]
    if not (sources / "pyproject.toml").is_file():
        root = cwd if cwd == sources else client_environments.directory_of(suite.environment)
        arguments += ["-c", str(PLUGINS / "pytest.ini"), f"--rootdir={root}"]
    for plugin in suite.plugins:
        arguments += ["-p", plugin]
    for test in suite.left_out:
        arguments += ["--deselect", test]
    variables = {"PYTHONPATH": str(PLUGINS)} | suite.variables(server)
    done = run_python(suite.environment, arguments, variables, cwd)
    assert report.is_file(), f"pytest wrote no report:\n{tail(done)}"
    return _read(report)


def _read(report: Path) -> Outcomes:
    found: Outcomes = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  pytest's own report
        name = f"{case.get('classname')}.{case.get('name')}"
        # A test may fail, and then its fixture as well: both are told.
        wrong = "\n".join(_told(event) for event in case if event.tag in {"failure", "error"})
        skips = [event.get("message", "") for event in case if event.tag == "skipped"]
        found[name] = wrong or (SKIPPED + skips[0] if skips else PASSED)
    return found


def _told(event: ET.Element) -> str:
    return f"{event.tag}: {event.get('message')}\n{event.text}"
