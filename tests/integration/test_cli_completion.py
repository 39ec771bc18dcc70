"""`leasehold completion`: shells that are there complete what the parsers know."""

import shutil
import subprocess
from pathlib import Path

import pytest

from leasehold.cli import COMMANDS, parser_for
from leasehold.cli.completion import SCRIPTS, commands_of

WITHIN_S = 60.0

KV = ["del", "get", "put", "txn", "watch"]
CASES = [
    ("leasehold ", sorted(COMMANDS)),
    ("leasehold l", ["lease", "lock"]),
    ("leasehold permit ", ["check", "grant", "list", "revoke"]),
    ("leasehold permit grant anna hall in --t", ["--timeout", "--ttl"]),
    ("leasehold kv ", KV),
    ("leasehold kv --help ", KV),
    ("leasehold lease re", ["renew", "revoke"]),
    ("leasehold kv get --ke", ["--key", "--keys-only"]),
    ("leasehold kv get --endpoint kv --ca", ["--cacert"]),
    ("leasehold kv get --timeout ", []),
    ("leasehold kv put lease --k", ["--keep-lease", "--key"]),
    ("leasehold kv put k ", []),
    ("leasehold status --cacert c", ["ca.pem"]),
    ("leasehold check c", ["ca.pem"]),
    ("leasehold completion f", ["fish"]),
    ("leasehold top --e", ["--endpoint", "--every"]),
    ("leasehold lock a --t", ["--timeout", "--token-env", "--ttl"]),
    ("leasehold nothing ", sorted(COMMANDS)),
]


def _typed(shell: str, script: Path, line: str) -> list[str]:
    match shell:
        case "bash":
            text = f"""
                source '{script}'
                COMP_WORDS=({line}{"''" if line.endswith(" ") else ""})
                COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
                _leasehold
                printf '%s\\n' "${{COMPREPLY[@]}}"
            """
        case "fish":
            text = f"source '{script}'; complete -C '{line}' | string split -f1 \\t"
        case _:  # what would be added is printed in place of that
            words = line.split() + ([""] if line.endswith(" ") else [])
            listed = " ".join(f"'{word}'" for word in words)
            text = f"""
                compdef() {{ : }}
                compadd() {{ shift; print -l -- ${{(M)@:#${{words[CURRENT]}}*}} }}
                _files() {{ print -l -- ${{words[CURRENT]}}*(N) }}
                source '{script}'
                words=({listed}) CURRENT={len(words)}
                _leasehold
            """
    done = subprocess.run(  # noqa: S603  our own script
        [shell, "-c", text],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.stderr == "", done
    return sorted(filter(None, done.stdout.splitlines()))


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_completes_commands_options_and_files(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell](parser_for()))
    (tmp_path / "ca.pem").touch()
    for line, expected in CASES:
        assert _typed(shell, script, line) == expected, line


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_command_and_option_is_in_the_script(shell: str) -> None:
    script = SCRIPTS[shell](parser_for())
    for command in commands_of(parser_for()):
        assert " ".join(command.path) in script
        for flag in command.flags:
            assert (flag in script) or (shell == "fish" and f"-l {flag[2:]}" in script)


def test_what_a_shell_would_take_for_its_own_is_in_no_text() -> None:
    for command in commands_of(parser_for()):
        for text in (*command.commands.values(), *command.flags.values()):
            assert not set(text) & set("'\"$`\\!;&|()"), text
