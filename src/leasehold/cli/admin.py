"""`leasehold admin`: the groups of the registrar, which servers announce."""

import argparse
from typing import TYPE_CHECKING, Final

from leasehold.cli.connection import finish, remote, require_leasehold, with_client
from leasehold.cli.output import emit_json, emit_lines
from leasehold.cli.parser import OK, Commands, add_group, epilog

if TYPE_CHECKING:
    from leasehold.client.client import Client

_PATH: Final = "/leasehold.v1.Admin/"

_EPILOG: Final = """\
examples:
  leasehold admin add-groups payments orders
  leasehold admin groups

Groups are stored, and shared by all servers of a cluster. Clients find the
registrar by them, with `leasehold discover`.
"""

_CHANGES: Final = {
    "add-groups": ("ADD", "add the registrar to groups", "payments orders"),
    "set-groups": ("SET", "replace all groups of the registrar", "payments"),
    "remove-groups": ("REMOVE", "remove the registrar from groups", "payments"),
}


def add_command(commands: Commands) -> None:
    """Add `admin` and its subcommands."""
    group = add_group(
        commands,
        "admin",
        summary="show and change the groups of a registrar",
        description="The groups of a registrar, by which clients find it on the network.",
        epilog=_EPILOG,
    )
    parser = group.add_parser(
        "groups",
        help="show the groups of the registrar",
        description='Show the groups of the registrar. The public group is shown as "".',
        epilog=epilog("leasehold admin groups"),
    )
    finish(parser, _run)
    parser.set_defaults(change="", groups=[])
    for name, (change, what, example) in _CHANGES.items():
        parser = group.add_parser(
            name,
            help=what,
            description=f"{what.capitalize()}. Servers announce the change immediately.",
            epilog=epilog(f"leasehold admin {name} {example}"),
        )
        parser.add_argument(
            "groups",
            nargs="*" if change == "SET" else "+",
            metavar="NAME",
            help='name of a group; "" is the public group',
        )
        finish(parser, _run)
        parser.set_defaults(change=change)


def _run(arguments: argparse.Namespace) -> int:
    async def work(client: "Client") -> int:
        from leasehold.events.client import call_service
        from leasehold.wire import admin_pb2 as pb

        require_leasehold(client, "leasehold admin")
        channel, kind = remote(client).channel, pb.MemberGroupsResponse
        if arguments.change:
            request = pb.ChangeMemberGroupsRequest(change=arguments.change, groups=arguments.groups)
            answer = await call_service(channel, f"{_PATH}ChangeMemberGroups", request, kind)
        else:
            asked = pb.MemberGroupsRequest()
            answer = await call_service(channel, f"{_PATH}MemberGroups", asked, kind)
        if arguments.json:
            emit_json({"groups": list(answer.groups), "groups_number": answer.groups_number})
        else:
            emit_lines(name or '""' for name in answer.groups)
        return OK

    return with_client(arguments, work)
