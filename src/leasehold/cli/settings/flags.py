"""Settings on the command line: each option of the table as a flag, and the data directory.

Commands other than `serve` use the data directory that `serve` would use. So a backup is of the
served data, also if a variable or a file names the directory. Other errors in the settings are
ignored there: a backup may be needed just then.
"""

import argparse
import os
from pathlib import Path
from typing import Final

from leasehold.cli.argument_types import path
from leasehold.cli.settings.options import BY_NAME, OPTIONS, Option
from leasehold.cli.settings.sources import (
    CONFIG_FILE,
    CONFIG_FLAG,
    CONFIG_VARIABLE,
    DEFAULT,
    Flags,
    read_settings,
)
from leasehold.cli.settings.value_types import SWITCH
from leasehold.errors import StorageError

_PREFIX: Final = "setting-"
"""Separates the values of options from other arguments of a command."""

_DATA_DIR: Final = BY_NAME["data-dir"]
IN_FORCE: Final = "(default: that of `leasehold serve`, ./leasehold.data unless set)"
directory = path("directory", "./leasehold.data")


# All options, for `serve` and `config`.


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all options, and the one that names a file."""
    names = dict.fromkeys(option.group for option in OPTIONS)
    groups = {name: parser.add_argument_group(name) for name in names}
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
    """Return the given values by option name."""
    return {
        dest.removeprefix(_PREFIX): str(value).lower() if isinstance(value, bool) else value
        for dest, value in vars(arguments).items()
        if dest.startswith(_PREFIX)
    }


# The data directory, for `backup`, `restore` and `check`.


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options for the source of the server's settings."""
    add_config_flag(parser, "TOML file of the server, which may set the data directory")


def directory_in_force(named: Path | None, arguments: argparse.Namespace) -> Path:
    """Return the named directory, else that of the settings. Raises `StorageError` if neither."""
    if named is not None:
        return named
    reading = read_settings(flags_of(arguments), os.environ)
    given = reading.values[_DATA_DIR.name]
    for mistake in reading.mistakes:
        if mistake.name in (None, _DATA_DIR.name) and given.where == DEFAULT:
            raise StorageError(f"{mistake.text}; or give the directory on the command line")
    if given.value is None:
        raise StorageError(
            f"{given.where}: the data directory is memory:, which stores "
            "nothing: name a directory on the "
            "command line"
        )
    assert isinstance(given.value, Path)
    return given.value
