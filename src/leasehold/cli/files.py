"""`leasehold files`: single-writer files.

Commands that copy bytes are in `files_copy`, those that check and delete replicas in
`files_upkeep`, and the configuration in `files_stores`.
"""

import argparse
from shlex import quote
from typing import TYPE_CHECKING, Final

from leasehold.cli import argument_types
from leasehold.cli.connection import finish_with_client, print_note
from leasehold.cli.files_copy import add_append, add_cat, add_put
from leasehold.cli.files_stores import add_stores
from leasehold.cli.files_upkeep import add_collect, add_fsck, add_repair
from leasehold.cli.files_views import (
    file_json,
    file_row,
    holder_json,
    holder_row,
    listed_name,
    open_json,
    open_row,
)
from leasehold.cli.output import emit_json, emit_lines, table
from leasehold.cli.parser import DENIED, NOT_THERE, OK, Commands, add_group, epilog
from leasehold.cli.settings.error_texts import escaped

if TYPE_CHECKING:
    from leasehold.client.client import Client

_GROUP_EPILOG: Final = """\
example:
  leasehold files stores --add $PWD/store
  date | leasehold files append - logs/dates
  leasehold files cat logs/dates

A file has one writer at a time. The bytes are in replica stores: directories
or URLs such as s3://bucket/path, which every client must be able to reach.
"""

WAIT_S: Final = 60.0
"""How long `recover` waits for a recovery, by default."""

RECOVERY_POLL_S: Final = 1.0
"""How often `recover` asks whether a recovery by another process is done."""

_PATH: Final = argument_types.name("path", "logs/a")
_FILE_HEADS: Final = ("STATE", "SIZE", "MODIFIED", "HOLDER", "NAME")
_HOLDER_HEADS: Final = ("HOLDER", "FILES", "RENEWED")
_OPEN_HEADS: Final = ("PATH", "RENEWED", "HOLDER")


def add_command(commands: Commands) -> None:
    """Add `files` and its subcommands."""
    group = add_group(
        commands,
        "files",
        summary="read and write single-writer files",
        description="Files that have one writer at a time, and whose flushed bytes survive it, on "
        "a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (
        *(_add_ls, add_cat, add_put, add_append, _add_mv, _add_rm, _add_mkdir),
        *(_add_recover, _add_holders, _add_open, add_fsck, add_repair),
        *(add_collect, add_stores),
    ):
        add(group)


# The tree.


def _add_ls(group: Commands) -> None:
    parser = group.add_parser(
        "ls",
        help="list a directory",
        description="List a directory in the order of its names, or a file.",
        epilog=epilog(
            """
            leasehold files mkdir logs
            leasehold files ls
            leasehold files ls -l logs
            """,
            NOT_THERE,
            notes="SIZE is the number of flushed bytes. STATE is open, recovering or closed.",
        ),
    )
    parser.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="directory or file (default: the root)"
    )
    parser.add_argument("-l", "--long", action="store_true", help="with state, size and holder")
    finish_with_client(parser, _ls)


async def _ls(client: "Client", arguments: argparse.Namespace) -> int:
    found = [each async for each in client.files.list(arguments.path)]
    if arguments.json:
        emit_json({"files": [file_json(each) for each in found]})
    elif arguments.long:
        emit_lines(table(_FILE_HEADS, map(file_row, found)))
    else:
        emit_lines(map(listed_name, found))
    return OK


def _add_mv(group: Commands) -> None:
    parser = group.add_parser(
        "mv",
        help="rename a file or directory",
        description="Rename a file or directory. Files below it that are open stay open.",
        epilog=epilog(
            """
            leasehold files mkdir drafts
            leasehold files mv drafts archive
            leasehold files rm archive
            """,
            NOT_THERE,
            notes="TARGET is the new path, not a directory to move into. Its directory must exist.",
        ),
    )
    parser.add_argument("source", type=_PATH, metavar="SOURCE", help="present path")
    parser.add_argument("target", type=_PATH, metavar="TARGET", help="new path")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace a file, even if it is open, or an empty directory",
    )
    finish_with_client(parser, _mv)


async def _mv(client: "Client", arguments: argparse.Namespace) -> int:
    await _rename(client, arguments.source, arguments.target, overwrite=arguments.overwrite)
    if arguments.json:
        emit_json({"source": arguments.source, "target": arguments.target})
    return OK


async def _rename(client: "Client", source: str, target: str, *, overwrite: bool) -> None:
    from leasehold.errors import FileExists, FileNotFound, IsADirectory

    try:
        await client.files.rename(source, target, overwrite=overwrite)
    except (FileExists, IsADirectory) as error:
        if (await client.files.stat(target)).is_directory:
            below = f"{target.strip('/')}/{source.strip('/').rpartition('/')[2]}"
            if below == source.strip("/"):
                raise FileExists(target, f"is a directory: {source!r} is in it already") from error
            raise FileExists(
                target, f"is a directory: write {below} to move {source!r} into it"
            ) from error
        raise
    except FileNotFound as error:
        parent = target.strip("/").rpartition("/")[0]
        if error.path != parent:
            raise
        raise FileNotFound(
            parent, f"no such directory: create it with `leasehold files mkdir {quote(parent)}`"
        ) from error


def _add_rm(group: Commands) -> None:
    parser = group.add_parser(
        "rm",
        help="delete files or directories",
        description=(
            "Delete files or directories. A writer that has a file open loses it. The space is "
            "freed later by a server with --file-stores, or by `leasehold files collect`."
        ),
        epilog=epilog(
            """
            leasehold files mkdir logs/old
            leasehold files rm logs/old
            leasehold files rm -r logs
            """,
            NOT_THERE,
            notes="Paths are deleted in the given order, until one cannot be deleted.",
        ),
    )
    parser.add_argument("paths", type=_PATH, nargs="+", metavar="PATH", help="files or directories")
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="delete directories with everything in them"
    )
    finish_with_client(parser, _rm)


async def _rm(client: "Client", arguments: argparse.Namespace) -> int:
    for path in arguments.paths:
        await client.files.delete(path, recursive=arguments.recursive)
    if arguments.json:
        emit_json({"deleted": arguments.paths})
    return OK


def _add_mkdir(group: Commands) -> None:
    parser = group.add_parser(
        "mkdir",
        help="create directories",
        description=(
            "Create directories and missing parents. Writing a file also creates its directories."
        ),
        epilog=epilog("leasehold files mkdir logs/old"),
    )
    parser.add_argument("paths", type=_PATH, nargs="+", metavar="PATH", help="directories")
    finish_with_client(parser, _mkdir)


async def _mkdir(client: "Client", arguments: argparse.Namespace) -> int:
    for path in arguments.paths:
        await client.files.make_directory(path)
    if arguments.json:
        emit_json({"directories": arguments.paths})
    return OK


# Leases.


def _add_recover(group: Commands) -> None:
    parser = group.add_parser(
        "recover",
        help="close a file whose writer is gone",
        description=(
            "Close an open file, regardless of the limits of its lease, and wait until it is "
            "closed. All flushed bytes stay. Its writer cannot write any more."
        ),
        epilog=epilog(
            """
            leasehold files stores --add $PWD/store
            date | leasehold files append - logs/dates
            leasehold files recover logs/dates
            """,
            NOT_THERE,
            DENIED,
            notes="The exit code is 7 if the file is not closed within the time of --wait.",
        ),
    )
    parser.add_argument("path", type=_PATH, metavar="PATH", help="the file")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="if no replica has all flushed bytes, close the file with those that are left",
    )
    parser.add_argument(
        "--wait",
        type=argument_types.term_or_0_s,
        default=WAIT_S,
        metavar="TIME",
        help="how long to wait for the end of the recovery; with 0 the recovery is tried once "
        "(default: 1m)",
    )
    finish_with_client(parser, _recover)


async def _recover(client: "Client", arguments: argparse.Namespace) -> int:
    from leasehold.errors import IsADirectory
    from leasehold.files.state import FileState

    before = await client.files.stat(arguments.path)
    if before.is_directory:
        raise IsADirectory(arguments.path)
    is_closed = await _wait_until_closed(client, arguments)
    size_bytes = (await client.files.stat(arguments.path)).size_bytes
    if lost := max(0, before.size_bytes - size_bytes):
        print_note(f"warning: {lost:,} of {before.size_bytes:,} flushed bytes are lost")
    if arguments.json:
        emit_json(
            {"path": arguments.path, "is_closed": is_closed, "size_bytes": size_bytes}
            | ({"lost_bytes": lost} if arguments.accept_loss else {})
        )
    elif is_closed:
        was_closed = before.state is FileState.CLOSED
        how = "was closed already: nothing was changed, it has" if was_closed else "is closed with"
        emit_lines([f"{arguments.path} {how} {size_bytes:,} bytes"])
    if not is_closed:
        print_note(await _unfinished(client, arguments.path))
    return OK if is_closed else DENIED


async def _unfinished(client: "Client", path: str) -> str:
    """Return why a file is not closed yet."""
    if why := await client.files.recovery_error(path):
        return (
            escaped(f"leasehold: {path!r} cannot be recovered now: {why}")
            + ". It is recovered when a store has the bytes again. Only if they are lost for good, "
            "use `--accept-loss`, which closes the file with the bytes that are left"
        )
    return (
        f"leasehold: the recovery of {path!r} is not done yet: wait longer with --wait; a recovery "
        "that a command has begun ends with the command, and the next one begins again"
    )


async def _wait_until_closed(client: "Client", arguments: argparse.Namespace) -> bool:
    import asyncio

    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + arguments.wait
    while not await client.files.recover(arguments.path, accept_loss=arguments.accept_loss):
        left_s = give_up_at - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(RECOVERY_POLL_S, left_s))
    return True


def _add_holders(group: Commands) -> None:
    parser = group.add_parser(
        "holders",
        help="list the writers and how many files each has open",
        description="List the holders of leases, and how many files each has open.",
        epilog=epilog("leasehold files holders"),
    )
    finish_with_client(parser, _holders)


async def _holders(client: "Client", arguments: argparse.Namespace) -> int:
    found = await client.files.holders()
    if arguments.json:
        emit_json({"holders": [holder_json(each) for each in found]})
    else:
        emit_lines(table(_HOLDER_HEADS, map(holder_row, found)))
    return OK


def _add_open(group: Commands) -> None:
    parser = group.add_parser(
        "open",
        help="list the files that are open for writing",
        description="List the files that are open for writing, at or below a path.",
        epilog=epilog("leasehold files open", NOT_THERE),
    )
    parser.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="directory or file (default: the root)"
    )
    finish_with_client(parser, _open)


async def _open(client: "Client", arguments: argparse.Namespace) -> int:
    found = [each async for each in client.files.open_files(arguments.path)]
    if arguments.json:
        emit_json({"files": [open_json(each) for each in found]})
    else:
        emit_lines(table(_OPEN_HEADS, map(open_row, found)))
    return OK
