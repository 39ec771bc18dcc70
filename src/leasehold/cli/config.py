"""`leasehold config`: print the effective settings and the source of each value."""

import argparse
import os
from typing import Any, Final

from leasehold.cli.output import print_error, print_line
from leasehold.cli.parser import FAILURE, Commands
from leasehold.cli.settings.options import OPTIONS
from leasehold.cli.settings.sources import Reading, add_flags, flags_of, read_settings
from leasehold.cli.settings.toml_file import toml_of
from leasehold.cli.settings.value_types import shown_terms
from leasehold.cli.tls_files import read_tls

_DESCRIPTION: Final = """\
Print the settings that `leasehold serve` would use with the same flags,
variables and file, each with its source. The output is a valid TOML file.

If settings are wrong, all errors are printed, and the exit code is 1. No server
is started, and no data is read.
"""

_EPILOG: Final = """\
examples:
  leasehold config
  leasehold config --config ./leasehold.toml --quota 4GiB
  leasehold config > new.toml

Write the output to a new file and then rename it: the shell empties the file
after > before the command reads its settings from it.
"""


def add_command(commands: Commands) -> None:
    """Add `config` to the commands."""
    parser = commands.add_parser(
        "config",
        help="show the effective settings and their sources",
        usage="%(prog)s [options]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the settings; return 0 if all are valid."""
    reading = read_settings(flags_of(arguments), os.environ)
    read_tls(reading)
    for line in (*reading.warnings, *(mistake.text for mistake in reading.mistakes)):
        print_error(line)
    if reading.mistakes:
        return FAILURE
    print_line("\n".join(_lines(reading)))
    return 0


def _lines(reading: Reading) -> list[str]:
    rows = [_row(reading, name) for name in (option.name for option in OPTIONS) if name != "policy"]
    policies = reading.values["policy"]
    for name, policy in policies.value:
        rows += [("", ""), (f'[policy."{name}"]', policies.where)]
        rows += [(f'{key} = "{term}"', "") for key, term in shown_terms(policy).items()]
    width = max(len(text) for text, _ in rows)
    return [f"{text:<{width}}  # {where}" if where else text for text, where in rows]


def _row(reading: Reading, name: str) -> tuple[str, str]:
    option = next(option for option in OPTIONS if option.name == name)
    given: Any = reading.values[name]
    if given.value in (None, ()) and not option.has_default:
        return f"# {name}", "not set"
    return f"{name} = {toml_of(option, given.value)}", given.where
