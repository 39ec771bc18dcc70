"""Settings that nobody writes by chance: each is told in one short line, and soon."""

import os
from pathlib import Path
from typing import Any

import pytest

from leasehold.cli import main
from leasehold.cli.settings.error_texts import MAX_SHOWN, MAX_SHOWN_PATH, shown
from leasehold.cli.settings.given_values import MAX_MISTAKES, MAX_VALUE_CHARS, MAX_VALUES
from leasehold.cli.settings.options import OPTIONS, Option
from leasehold.cli.settings.sources import Reading, read_settings
from leasehold.cli.settings.toml_file import MAX_FILE_BYTES
from tests.support.cost import cost

MAX_LINE = 1500
"""What a mistake has at most, whatever was written: its place, its reason, and the right form."""

MAX_COST = 400

LONG = [
    "x" * 70_000,
    "9" * 5_000,
    "1d" * 3_000,
    "127.0.0.1:" + "9" * 5_000,
    "x" * 70_000 + ":1",
    "x" * 5_000 + "://a",
    "unix:" + "a" * 5_000,
    "a:" + "b" * 5_000,
    "a" * 5_000 + ":min=1s",
]
ODD = [
    "a\nb",
    "a\rb:1",
    "\x1b[2Ja",
    "\x7f",
    "\u2028",
    "a\nb://c",
    "unix:/a\nb",
    "\udcff",
    "a:\n=1s",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where no file is by chance."""
    monkeypatch.chdir(tmp_path)


def read(toml: str = "", **kwargs: Any) -> Reading:
    if toml:
        Path("leasehold.toml").write_text(toml, newline="")
    return read_settings(kwargs.get("flags", {}), kwargs.get("environ", {}))


def told(reading: Reading) -> list[str]:
    """Give what is wrong, if it is told as it should be."""
    texts = [mistake.text for mistake in reading.mistakes]
    assert texts
    for text in (*texts, *reading.warnings):
        assert text.isprintable()
        assert len(text) <= MAX_LINE
    return texts


# Values.


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12])
def test_a_value_of_any_length_is_told_in_a_short_line(option: Option, text: str) -> None:
    flag: Any = [text] if option.kind.is_list else text
    assert len(told(read(flags={option.name: flag}))) == 1
    assert len(told(read(environ={option.variable: text}))) == 1
    assert len(told(read(f'{option.name} = "{text}"\n'))) == 1


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("text", ODD, ids=ascii)
def test_a_value_with_control_characters_is_refused_and_shown_without(
    option: Option, text: str
) -> None:
    flag: Any = [text] if option.kind.is_list else text
    assert len(told(read(flags={option.name: flag}))) == 1
    assert told(read(environ={option.variable: f".{text}."}))


def test_what_is_shown_says_how_much_there_was() -> None:
    assert shown("a") == "'a'"
    assert shown("b" * MAX_SHOWN) == repr("b" * MAX_SHOWN)
    assert shown("b" * 70_000) == f"{'b' * MAX_SHOWN!r}... (70,000 characters)"


@pytest.mark.parametrize("char", ["\u3000", "ä", "\U0001f600"])
def test_paths_in_any_script_are_taken(char: str) -> None:
    reading = read(flags={"data-dir": f"./{char}"})
    assert not reading.mistakes
    assert reading.settings.directory == Path(char)


def test_the_longest_value() -> None:
    assert not read(flags={"data-dir": "a" * MAX_VALUE_CHARS}).mistakes
    (text,) = told(read(flags={"data-dir": "a" * (MAX_VALUE_CHARS + 1)}))
    assert f"write at most {MAX_VALUE_CHARS:,} characters" in text


def test_a_list_has_an_end() -> None:
    listen = [f"127.0.0.1:{port}" for port in range(1, MAX_VALUES + 1)]
    assert not read(flags={"listen": listen}).mistakes
    for reading in (
        read(flags={"listen": [*listen, "127.0.0.1:1"]}),
        read(environ={"LEASEHOLD_LISTEN": " ".join([*listen, "127.0.0.1:1"])}),
        read(f"listen = {['127.0.0.1:1'] * 20_000}\n"),
        read(f"listen = {[1] * 20_000}\n"),
    ):
        (text,) = told(reading)
        assert f"write at most {MAX_VALUES}" in text


def test_unknown_variables_are_warned_of_in_short_lines() -> None:
    reading = read(environ={"LEASEHOLD_" + "X" * 70_000: "", "LEASEHOLD_A\nleasehold: all": "1"})
    first, second = reading.warnings
    assert first.startswith(r"'LEASEHOLD_A\nleasehold: all' is set")
    assert len(second) < MAX_LINE


# The file.


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
@pytest.mark.parametrize("number", ["0x" + "f" * 4_000, "9" * 4_000, "-" + "9" * 4_000])
def test_a_vast_number_is_told_in_a_short_line(option: Option, number: str) -> None:
    (text,) = told(read(f"\n{option.name} = {number}\n"))
    assert text.startswith("leasehold.toml:2: ")
    assert "a number of more than 100 digits" in text


def test_a_number_that_python_does_not_read_is_told_with_its_line() -> None:
    (text,) = told(read(f"quota = 1\n\nkeys-per-lease = {'9' * 5_000}\n"))
    assert text.startswith("leasehold.toml:3: ")
    assert "has too many digits" in text


@pytest.mark.parametrize(
    "toml",
    [
        "x = " + "[" * 900 + "]" * 900,
        "x = " + "[" * 100_000,
        "x = " + "{a=" * 900 + "1" + "}" * 900,
    ],
    ids=["lists", "endless", "tables"],
)
def test_what_is_too_deep_is_told_in_a_line(toml: str) -> None:
    (text,) = told(read(toml))
    assert text.startswith("leasehold.toml: ")
    assert "nested too deeply" in text


@pytest.mark.parametrize("parts", [10, 500, 1_500])
def test_a_key_of_very_many_parts_is_told_with_its_line(parts: int) -> None:
    (text,) = told(read("quota = '2GiB'\n" + "a." * parts + "b = 1\n"))
    assert text.startswith("leasehold.toml:2: a is not a known setting")


@pytest.mark.parametrize(
    ("toml", "name"),
    [
        (r'"a\nleasehold serves" = 1', r"'a\nleasehold serves'"),
        (r'"\u001b[2J" = 1', r"'\x1b[2J'"),
        (r'"a\u2028b" = 1', r"'a\u2028b'"),
        ('"" = 1', "''"),
        ('"a: b" = 1', "'a: b'"),
        (r"""[policy."a\nb"]""", r"policy.'a\nb'"),
        (r"""[policy.x]
"a\nb" = 1""", r"policy.x.'a\nb'"),
        (r"""policy."a\nb" = 1""", r"policy.'a\nb'"),
        ("k" * 70_000 + " = 1", f"'{'k' * MAX_SHOWN}'... (70,000 characters)"),
        ("qouta = 1", "qouta"),
    ],
    ids=ascii,
)  # fmt: skip
def test_a_key_is_shown_in_one_line_whatever_is_in_it(toml: str, name: str) -> None:
    (text,) = told(read(toml + "\n"))
    assert text.partition(": ")[2].startswith((name + " ", name + ":"))


@pytest.mark.parametrize(
    "toml",
    [
        "".join(f"k{n} = 1\n" for n in range(20_000)),
        "[policy.x]\n" + "".join(f"k{n} = 1\n" for n in range(20_000)),
        "".join(f"[policy.'x {n}']\n" for n in range(20_000)),
    ],
    ids=["keys", "terms", "policies"],
)
def test_of_very_many_mistakes_the_first_are_told(toml: str) -> None:
    def read_it() -> None:
        *texts, last = told(read(toml))
        assert len(texts) == MAX_MISTAKES
        assert "there are more errors" in last

    assert cost(read_it, times=1) < MAX_COST


def test_a_statement_of_very_many_lines_is_read_in_time() -> None:
    def read_it() -> None:
        (text,) = told(read("listen = [\n" + "# a comment\n" * 50_000 + "]\nqouta = 1\n"))[1:]
        assert text == "leasehold.toml: qouta is not a known setting: did you mean quota?"

    assert cost(read_it, times=1) < MAX_COST


def test_twice_the_same_key_of_any_length() -> None:
    (text,) = told(read(f"[{'a' * 70_000}]\n" * 2))
    assert "not valid TOML" in text


# What is no file.


def test_a_pipe_is_refused_at_once() -> None:
    os.mkfifo("pipe")
    for reading in (read(flags={"config": "pipe"}), read(environ={"LEASEHOLD_CONFIG": "pipe"})):
        (text,) = told(reading)
        assert "pipe cannot be read: it is not a regular file; name a TOML file" in text


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/", "/proc/self/mem"])
def test_nor_are_devices_and_directories_read(path: str) -> None:
    (text,) = told(read(flags={"config": path}))
    assert text.startswith(f"--config: {path} cannot be read: ")
    assert text.endswith("; name a TOML file")


def test_a_file_that_is_too_large_is_not_read() -> None:
    with Path("large").open("wb") as file:
        file.truncate(1 << 40)
    (text,) = told(read(flags={"config": "large"}))
    assert f"it has more than {MAX_FILE_BYTES:,} bytes" in text


@pytest.mark.parametrize("name", ["a\nb", "x" * 70_000, "\udcff", "a\0b"], ids=ascii)
def test_the_name_of_the_file_is_shown_in_one_line(name: str) -> None:
    assert len(told(read(flags={"config": name}))) == 1


def test_where_a_value_comes_from_is_shown_in_one_line() -> None:
    Path("a\nb").write_text("quota = '3GiB'\n")
    reading = read(flags={"config": "a\nb"})
    assert reading.values["quota"].where == r"'a\nb':1"
    long = Path("d" * 200, *["e" * 200] * 5, "f.toml")
    long.parent.mkdir(parents=True)
    long.write_text("quota = '3GiB'\n")
    assert len(read(flags={"config": str(long)}).values["quota"].where) < MAX_SHOWN_PATH


# The command line.


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--a\nb"],
        ["serve", "--" + "a" * 70_000],
        ["serve", "a\nb"],
        ["serve", "b" * 70_000],
        ["serve", "--insecure=" + "c" * 70_000],
        ["serve", "--insecure=c\nd"],
        ["d\ne"],
        ["d" * 70_000],
        ["serve", "--quota", "e\nf"],
        ["config", "--config", "e\nf"],
        ["check", "\x1b[2J\nb"],
        ["check", "a" * 70_000],
        ["check", "\udcff"],
        ["restore", "a\nb", "--data-dir", "c\nd"],
    ],
    ids=lambda arguments: ascii(" ".join(arguments)[:40]),
)
def test_a_command_complains_in_one_short_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code  # type: ignore[assignment]
    assert code in (1, 2)
    line, end, rest = capsys.readouterr().err.partition("\n")
    assert (end, rest) == ("\n", "")
    assert line.isprintable()
    assert len(line) <= MAX_LINE
