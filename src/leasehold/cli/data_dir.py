"""The data directory for the commands that serve nothing: it is the one that `serve` would have.

So a backup is of what is served, also if a variable or a file says where that is. Other mistakes in
these do not matter here: a backup may be wanted just then.
"""

import argparse
import os
from pathlib import Path
from typing import Final

from leasehold.cli.settings.flags import add_config_flag, flags_of
from leasehold.cli.settings.options import BY_NAME
from leasehold.cli.settings.reading import DEFAULT, read_settings
from leasehold.errors import StorageError

_OPTION: Final = BY_NAME["data-dir"]
IN_FORCE: Final = "(default: that of `leasehold serve`, ./leasehold.data unless set)"


def directory(text: str) -> Path:
    """Read the name of a directory."""
    if not text:
        raise argparse.ArgumentTypeError(
            "the directory name is empty: write one, such as ./leasehold.data"
        )
    return Path(text)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add what says where the settings of the server are."""
    add_config_flag(parser, "TOML file of the server, which may set the data directory")


def directory_in_force(named: Path | None, arguments: argparse.Namespace) -> Path:
    """Find out which directory is meant, if none is named; `StorageError` says why none is."""
    if named is not None:
        return named
    reading = read_settings(flags_of(arguments), os.environ)
    given = reading.values[_OPTION.name]
    for mistake in reading.mistakes:
        if mistake.name in (None, _OPTION.name) and given.where == DEFAULT:
            raise StorageError(f"{mistake.text}; or give the directory on the command line")
    if given.value is None:
        raise StorageError(
            f"{given.where}: the data directory is memory:, which stores "
            "nothing: name a directory on the "
            "command line"
        )
    assert isinstance(given.value, Path)
    return given.value
