"""`leasehold files stores`: the configuration of files."""

import argparse
import re
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.connection import finish_with_client, print_note
from leasehold.cli.files_views import config_json, config_lines
from leasehold.cli.output import emit_json, emit_lines
from leasehold.cli.parser import OK, Commands, epilog
from leasehold.cli.settings.error_texts import escaped

if TYPE_CHECKING:
    from leasehold.client.client import Client

_PARAMETER: Final = re.compile(r"\b(?:min_replicas|replicas|soft_limit|hard_limit|keep)\b")
_REMOVING: Final = (
    "note: a server with --file-stores copies the blocks first, and then removes the store; "
    "without one, run `leasehold files repair`, and then `leasehold files stores --drop URL`"
)
_DROPPED: Final = (
    "warning: blocks may have lost a replica: `leasehold files fsck` lists them, and those that "
    "have lost the only one; a server with --file-stores copies the others, and `leasehold files "
    "repair` copies them now: do not drop another store before that is done"
)


def _store_url(text: str) -> str:
    """Return the URL of a store in its one form."""
    from leasehold.files.replica_store import normal_url

    try:
        return normal_url(argument_types.name("URL", "/srv/store")(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_stores(group: Commands) -> None:
    """Add `files stores`."""
    parser = group.add_parser(
        "stores",
        help="show or change the replica stores and limits",
        description=(
            "Show the configuration of all files, or change it. A change applies to all clients "
            "within 5 seconds."
        ),
        epilog=epilog(
            """
            leasehold files stores --add $PWD/store-a --add $PWD/store-b
            leasehold files stores --replicas 2 --soft-limit 1m --hard-limit 20m
            leasehold files stores
            """,
            notes="STATE shows whether this machine can use the store. A store that is added is "
            "created if it is missing. If it cannot be used from this machine, it is added with a "
            "warning. A store that is removed gets no new blocks. It is listed, and read, until a "
            "server with --file-stores has copied its blocks to other stores; --add cancels the "
            "removal. A server uses only the stores of its --file-stores: add a new store there, "
            "too.",
        ),
    )
    for option, text in (
        ("--add", "add a store"),
        ("--remove", "remove a store when its blocks are in other stores"),
        ("--drop", "remove a store immediately, even if it has the only replica of a block"),
    ):
        parser.add_argument(
            option,
            type=_store_url,
            action="append",
            default=[],
            metavar="URL",
            help=f"{text}: an absolute directory, or a URL; may be given several times",
        )
    parser.add_argument(
        "--claim",
        type=_store_url,
        action="append",
        default=[],
        metavar="URL",
        help="take over a store of another keyspace, or of none, such as after a restore: data in "
        "it that this keyspace does not use will be deleted",
    )
    parser.add_argument(
        "--replicas",
        type=argument_types.count,
        metavar="N",
        help="copies of each block (initially 3)",
    )
    parser.add_argument(
        "--min-replicas",
        type=argument_types.count_or_0,
        metavar="N",
        help="copies that a flush needs; 0 for a majority (initially 0)",
    )
    parser.add_argument(
        "--soft-limit",
        type=argument_types.term_s,
        metavar="TIME",
        help="how long a writer that does not renew has exclusive access (initially 1m)",
    )
    parser.add_argument(
        "--hard-limit",
        type=argument_types.term_s,
        metavar="TIME",
        help="how long until a server closes the files of a writer that does not renew "
        "(initially 20m)",
    )
    parser.add_argument(
        "--keep",
        type=argument_types.term_or_0_s,
        metavar="TIME",
        help="how long deleted and replaced bytes stay for readers (initially 1h)",
    )
    finish_with_client(parser, _stores)


async def _stores(client: "Client", arguments: argparse.Namespace) -> int:
    names = ("replicas", "min_replicas", "soft_limit", "hard_limit", "keep")
    given: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    urls = {name: getattr(arguments, name) for name in ("add", "remove", "drop")}
    if arguments.claim:
        await _check_claims(client, arguments)
    if any(urls.values()) or any(each is not None for each in given.values()):
        try:
            config = await client.files.configure(**urls, **given)
        except ValueError as error:
            raise ValueError(_with_flags(str(error))) from None
    else:
        config = await client.files.config()
    for url in arguments.claim:
        await client.files.claim_store(url)
        print_note(
            escaped(f"note: store {url} belongs to this keyspace now, and to no other one; ")
            + "run `leasehold files repair --verify` to restore replicas that it has lost"
        )
    for url, why in client.files.failed_stores().items():
        if url in arguments.add:
            print_note(escaped(f"warning: store {url} cannot be used from here: {why}"))
    if arguments.remove:
        print_note(_REMOVING)
    if arguments.drop:
        print_note(_DROPPED)
    present = len(config.staying)
    if config.stores and config.needed > present:
        print_note(
            f"warning: no file can be written: a flush needs {config.needed} stores, and there "
            f"are {present}: add stores, or lower --min-replicas"
        )
    failures = await client.files.check_stores()
    if arguments.json:
        emit_json(config_json(config, failures))
    else:
        emit_lines(config_lines(config, failures))
    return OK


async def _check_claims(client: "Client", arguments: argparse.Namespace) -> None:
    """Raise `ValueError` for a store to be claimed that is not configured: nothing is changed."""
    known = {store.url for store in (await client.files.config()).stores}
    if unknown := set(arguments.claim) - known.union(arguments.add):
        url = min(unknown)
        raise ValueError(f"store {url} is not configured: add it first, with --add {url}")


def _with_flags(text: str) -> str:
    """Return the text of an error with flags in place of parameters, if it is about these."""
    if not _PARAMETER.match(text):
        return text
    return _PARAMETER.sub(lambda found: f"--{found[0].replace('_', '-')}", text)
