"""Commands that go on without a server print the warnings of the client."""

import asyncio
import logging
from typing import Any

import pytest

from leasehold.cli.connection import Work, showing_warnings


async def _warn(_client: Any) -> int:
    logging.getLogger("leasehold.sessions").warning("the connection to %s was lost", "h:1")
    return 3


async def _run(work: Work) -> int:
    client: Any = None
    return await work(client)


def test_warnings_are_printed_while_the_work_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(_run(showing_warnings(_warn))) == 3
    assert capsys.readouterr().err == "leasehold: the connection to h:1 was lost\n"
    asyncio.run(_run(_warn))
    assert not capsys.readouterr().err


class _Closed:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, _text: str) -> int:
        raise self._error


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "no space"), ValueError("I/O operation")]
)
def test_a_warning_that_cannot_be_printed_does_not_end_what_has_logged_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("sys.stderr", _Closed(error))
    assert asyncio.run(_run(showing_warnings(_warn))) == 3
