"""Settings from the command line: each option of the table as a flag."""

import argparse
from typing import Final

from leasehold.cli.settings.kinds import SWITCH
from leasehold.cli.settings.options import OPTIONS, Option
from leasehold.cli.settings.reading import CONFIG_FILE, CONFIG_FLAG, Flags
from leasehold.cli.settings.variables import CONFIG_VARIABLE

_PREFIX: Final = "setting-"
"""Keeps what was given for an option apart from what else a command takes."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all options, and the one that names a file."""
    groups = {name: parser.add_argument_group(name) for name in dict.fromkeys(_groups())}
    for option in OPTIONS:
        _add_flag(groups[option.group], option)
    add_config_flag(parser.add_argument_group("settings"), "TOML file with any of these settings")


def add_config_flag(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the option that names a file."""
    parser.add_argument(
        CONFIG_FLAG,
        metavar="FILE",
        dest=_PREFIX + "config",
        help=f"{what} (default: ${CONFIG_VARIABLE}, or ./{CONFIG_FILE} if it exists)",
    )


def _groups() -> list[str]:
    return [option.group for option in OPTIONS]


def _add_flag(group: argparse._ArgumentGroup, option: Option) -> None:
    dest, kind = _PREFIX + option.name, option.kind
    if kind is SWITCH:
        group.add_argument(
            option.flag, dest=dest, action=argparse.BooleanOptionalAction, help=option.help
        )
        return
    group.add_argument(
        option.flag,
        dest=dest,
        action="append" if kind.is_list else "store",
        metavar=kind.metavar,
        help=option.help + (f" (default: {option.shown_default})" if option.has_default else ""),
    )


def flags_of(arguments: argparse.Namespace) -> Flags:
    """Find what was given, by the names of options."""
    return {
        dest.removeprefix(_PREFIX): str(value).lower() if isinstance(value, bool) else value
        for dest, value in vars(arguments).items()
        if dest.startswith(_PREFIX)
    }
