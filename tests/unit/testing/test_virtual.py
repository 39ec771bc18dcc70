"""One host without ceremony, and what the package shows."""

import asyncio
import doctest

import pytest

import leasehold.testing
from leasehold.testing import current_host, run_virtual


def test_run_virtual_returns_the_result_and_takes_no_real_time() -> None:
    async def wait_a_week(answer: int) -> tuple[int, float]:
        clock = current_host().clock
        start = clock.boottime()
        await asyncio.sleep(7 * 86_400.0)
        return answer, clock.boottime() - start

    answer, waited = run_virtual(wait_a_week, 42)
    assert answer == 42
    assert waited == pytest.approx(604_800.0)


def test_run_virtual_raises_what_the_function_raises() -> None:
    async def fail() -> None:
        await asyncio.sleep(1.0)
        raise LookupError("lost")

    with pytest.raises(LookupError) as info:
        run_virtual(fail, seed=9)
    assert "LEASEHOLD_SEED=9" in info.value.__notes__[0]


def test_there_is_no_current_host_outside() -> None:
    with pytest.raises(RuntimeError, match="outside"):
        current_host()

    async def ask() -> None:
        current_host()

    with pytest.raises(RuntimeError, match="outside"):
        asyncio.run(ask())


def test_the_example_in_the_docstring_runs() -> None:
    results = doctest.testmod(leasehold.testing)
    assert results.attempted > 0
    assert results.failed == 0


def test_all_names_what_there_is() -> None:
    names = leasehold.testing.__all__
    assert sorted(names, key=str.lower) == sorted(set(names), key=str.lower)
    assert all(hasattr(leasehold.testing, name) for name in names)
