"""The page on settings says of each option what its table says, and the file there is right."""

import re
from pathlib import Path

from leasehold.cli.settings.options import BY_NAME, CLUSTER, OPTIONS, Option
from leasehold.cli.settings.sources import read_settings
from leasehold.server.settings import MAX_KEYS_PER_LEASE, MAX_QUOTA_BYTES, MIN_QUOTA_BYTES

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
TEXT = PAGE.read_text()
ROW = re.compile(r"^\| `([a-z-]+)` \|.*$", re.MULTILINE)


def row(option: Option) -> str:
    """Write an option's line of the table."""
    metavar = option.kind.metavar.replace("|", "\\|")
    flag = f"`{option.flag} {metavar}`" if metavar else f"`{option.flag}`"
    default = f"`{option.shown_default}`" if option.has_default else ""
    return f"| `{option.name}` | {flag} | {default} | {option.help} |"


def test_the_table_has_each_option_as_it_is() -> None:
    wanted = [row(option) for option in OPTIONS]
    found = [match[0] for match in ROW.finditer(TEXT)]
    assert found == wanted, "\n" + "\n".join(wanted)


def test_the_file_on_the_page_is_read_as_it_is(tmp_path: Path) -> None:
    (content,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    file = tmp_path / "leasehold.toml"
    file.write_text(content)
    reading = read_settings({"config": str(file)}, {})
    assert not reading.mistakes
    unsaid = {name for name, given in reading.values.items() if given.where == "default"}
    of_cluster = {option.name for option in OPTIONS if option.group == CLUSTER}
    assert unsaid == {"insecure", *of_cluster}, "it has everything that may be copied together"


def test_the_variables_on_the_page_are_those_there_are() -> None:
    known = {option.variable for option in OPTIONS} | {"LEASEHOLD_CONFIG"}
    named = set(re.findall(r"`(LEASEHOLD_[A-Z_]+)(?:=[^`]*)?`", TEXT))
    assert named
    assert named <= known


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    assert f"{MIN_QUOTA_BYTES // 1024**2} MiB to {MAX_QUOTA_BYTES // 1024**4} TiB" in TEXT
    assert f"1 to {MAX_KEYS_PER_LEASE:,}" in TEXT
    assert "client-ca" in BY_NAME
