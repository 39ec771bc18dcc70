"""`leasehold discover`: the registrars on the network, by group and by locator."""

import argparse
from typing import TYPE_CHECKING, Final

from leasehold.cli import argument_types
from leasehold.cli.connection import ConnectOptions, add_tls, print_note, with_connect_options
from leasehold.cli.discovery_views import (
    REGISTRAR_HEADS,
    add_locator,
    registrar_json,
    registrar_row,
)
from leasehold.cli.output import emit_json, emit_lines, print_error, table
from leasehold.cli.parser import NO_SERVER, OK, USAGE_ERROR, Commands, epilog

if TYPE_CHECKING:
    from leasehold.discovery.discovery import Discovery
    from leasehold.discovery.state import DiscoveryEvent

TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.05


def add_command(commands: Commands) -> None:
    """Add `discover` to the commands."""
    parser = commands.add_parser(
        "discover",
        help="find registrars on the network",
        description="Find registrars by group, which servers announce on the local network, and by "
        "locator, the address of a server. Without either, all groups are searched.",
        epilog=epilog(
            """
            leasehold discover --locator leasehold://127.0.0.1:2379
            leasehold discover --locator leasehold://127.0.0.1:2379 --json
            """,
            notes="The exit code is 4 if nothing was found in time. Groups need the package "
            "zeroconf: install leasehold[discovery].",
        ),
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help='group whose registrars are wanted; "" is the public group; may be given several '
        "times",
    )
    add_locator(parser)
    parser.add_argument(
        "--timeout",
        type=argument_types.term_s,
        default=TIMEOUT_S,
        metavar="TIME",
        help="time limit of the search (default: 5s); without groups it ends as soon as all "
        "locators have responded",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="print events about discovered, discarded and changed registrars, until a signal",
    )
    add_tls(parser.add_argument_group("server"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, endpoint=None)


def run(arguments: argparse.Namespace) -> int:
    """Look for registrars; return the exit code."""
    import asyncio

    from leasehold.cli.signals import SIGNALS
    from leasehold.discovery.discovery import Discovery
    from leasehold.discovery.state import ALL_GROUPS

    async def main(server: ConnectOptions) -> int:
        is_all = not arguments.group and not arguments.locator
        try:
            groups = ALL_GROUPS if is_all else arguments.group
            discovery = Discovery(groups, arguments.locator, tls=server.tls)
        except (ImportError, ValueError) as error:
            print_error(str(error))
            return USAGE_ERROR
        async with discovery:
            if not arguments.watch:
                return await _look(discovery, arguments)
            discovery.add_listener(lambda event: _print(event, arguments), changes=True)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if SIGNALS.received is None:
                    raise
        return OK

    return with_connect_options(arguments, main)


async def _look(discovery: "Discovery", arguments: argparse.Namespace) -> int:
    import asyncio

    loop = asyncio.get_running_loop()
    until = loop.time() + arguments.timeout
    while loop.time() < until:
        if discovery.groups() == [] and not discovery.undiscovered_locators():
            break
        await asyncio.sleep(min(POLL_S, arguments.timeout))
    found = discovery.registrars()
    if arguments.json:
        emit_json({"registrars": [registrar_json(each) for each in found]})
    elif found:
        emit_lines(table(REGISTRAR_HEADS, map(registrar_row, found)))
    else:
        print_note("no registrar was found")
    errors = discovery.locator_errors()
    for locator in discovery.undiscovered_locators():
        error = errors.get(locator, "there was not enough time")
        print_error(f"no registrar has answered at {locator}: {error}")
    return OK if found else NO_SERVER


def _print(event: "DiscoveryEvent", arguments: argparse.Namespace) -> None:
    for each in event.registrars:
        if arguments.json:
            emit_json({"event": event.kind.value, **registrar_json(each)})
        else:
            emit_lines(["  ".join((event.kind.value, *registrar_row(each)))])
