"""The fixtures for users' tests, as users have them: in runs of pytest of their own."""

import asyncio  # noqa: F401  runs in this process would else each import one of their own
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = "pytester"

REPOSITORY = Path(__file__).parents[2]
PLUGIN = "leasehold.pytest_plugin"
RUN_S = 60.0
TESTS = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Have a directory with tests of a user, in which our plugin counts, installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("LEASEHOLD_ENDPOINTS", raising=False)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    return pytester


def _passes(user: pytest.Pytester, tests: str, count: int = 1) -> None:
    user.makepyfile(tests)
    user.runpytest_inprocess("-p", PLUGIN).assert_outcomes(passed=count)


def test_the_server_is_real_and_the_program_under_test_finds_it(user: pytest.Pytester) -> None:
    _passes(
        user,
        """
        import asyncio, os
        import leasehold

        async def program():
            async with leasehold.connect() as client:
                await client.kv.put("greeting", "hello")
                return (await client.kv.get("greeting")).text

        def test_program(leasehold_server):
            assert leasehold_server.endpoint.startswith("127.0.0.1:")
            assert asyncio.run(program()) == "hello"

        def test_after_it():
            assert "LEASEHOLD_ENDPOINTS" not in os.environ
        """,
        count=2,
    )


def test_each_test_has_an_empty_keyspace(user: pytest.Pytester) -> None:
    _passes(
        user,
        """
        import pytest

        @pytest.mark.parametrize("turn", [1, 2])
        def test_it(leasehold_client, turn):
            assert leasehold_client.kv.get("turn") is None
            leasehold_client.kv.put("turn", str(turn))
        """,
        count=2,
    )


def test_a_plain_test_has_a_client_that_blocks(user: pytest.Pytester) -> None:
    _passes(
        user,
        """
        def test_it(leasehold_client, leasehold_server):
            with leasehold_client.lease(10) as lease:
                leasehold_client.kv.put("worker", "here", lease=lease)
                with leasehold_server.outage():
                    assert lease.is_held
                assert leasehold_client.kv.get("worker").text == "here"
            assert leasehold_client.kv.get("worker") is None
        """,
    )


def test_a_coroutine_has_a_client_without_any_plugin_for_asyncio(user: pytest.Pytester) -> None:
    _passes(
        user,
        """
        import asyncio

        def test_it(leasehold_server, leasehold_async_client):
            async def use():
                async with leasehold_async_client as one, leasehold_server.connect() as two:
                    await one.kv.put("greeting", "hello")
                    assert (await two.kv.get("greeting")).text == "hello"

            asyncio.run(use())
        """,
    )


def test_the_clients_of_the_fixtures_can_be_cut_off(user: pytest.Pytester) -> None:
    _passes(
        user,
        """
        import asyncio
        import pytest

        def test_it(leasehold_server, leasehold_client, leasehold_async_client):
            async def use():
                async with leasehold_async_client as other:
                    leasehold_server.disconnect(other)
                    leasehold_client.kv.put("greeting", "hello")
                    leasehold_server.disconnect(leasehold_client)
                    leasehold_server.reconnect(other)
                    with pytest.raises(TimeoutError):
                        leasehold_client.kv.get("greeting", timeout=0.1)
                    assert (await other.kv.get("greeting")).text == "hello"

            lease = leasehold_client.lease(10)
            asyncio.run(use())  # and it is let back before it is closed
        """,
    )


def test_a_test_that_forgets_to_enter_the_client_is_told_to(user: pytest.Pytester) -> None:
    user.makepyfile("def test_it(leasehold_async_client): leasehold_async_client.kv")
    result = user.runpytest_inprocess("-p", PLUGIN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AttributeError: *async with*"])


def test_the_fixtures_say_what_they_are(user: pytest.Pytester) -> None:
    result = user.runpytest_inprocess("-p", PLUGIN, "--fixtures")
    result.stdout.fnmatch_lines_random(
        [
            "leasehold_server -- *",
            "*A real Leasehold server*",
            "leasehold_client -- *",
            "leasehold_async_client -- *",
        ]
    )


def test_the_tests_in_the_docs_pass(user: pytest.Pytester) -> None:
    page = (REPOSITORY / "docs" / "howto-test.md").read_text()
    blocks = [block for block in TESTS.findall(page) if "def test_" in block]
    user.makepyfile(**{f"test_{number}": block for number, block in enumerate(blocks)})
    user.runpytest_inprocess("-p", PLUGIN).assert_outcomes(passed=7)


def _install(user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a package of which there is only the entry point that ours has."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    info = user.mkdir("site") / "installed-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    plugins = (f"{name} = {where}\n" for name, where in project["entry-points"]["pytest11"].items())
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(plugins))
    monkeypatch.syspath_prepend(info.parent)


def test_pytest_finds_the_plugin_by_itself(
    user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(user, monkeypatch)
    user.makepyfile("def test_it(leasehold_server): pass")
    user.runpytest_inprocess().assert_outcomes(passed=1)


def test_the_plugin_can_be_switched_off(
    user: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(user, monkeypatch)
    user.makepyfile("def test_it(leasehold_server): pass")
    result = user.runpytest_inprocess("-p", "no:leasehold")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'leasehold_server' not found"])


def test_importing_the_plugin_imports_nothing_else_of_the_library() -> None:
    code = f"import sys, {PLUGIN}; print(*(m for m in sys.modules if m.startswith('leasehold')))"
    run = subprocess.run(  # noqa: S603  our own code
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
    )
    version = ["leasehold.basics", "leasehold.basics.version"]  # a constant, for `__version__`
    assert sorted(run.stdout.split()) == ["leasehold", *version, PLUGIN]


def test_the_name_of_the_variable_is_the_one_that_counts() -> None:
    from leasehold import pytest_plugin  # noqa: PLC0415  pytest would have imported it otherwise
    from leasehold.client import connecting  # noqa: PLC0415

    assert pytest_plugin.VARIABLE == connecting.VARIABLE
