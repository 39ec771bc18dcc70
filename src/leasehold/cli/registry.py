"""`leasehold registry`: register services, look them up, watch and browse them."""

import argparse
import json
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from leasehold.basics.durations import FOREVER, Duration
from leasehold.cli import argument_types
from leasehold.cli.connection import (
    RefusedError,
    finish,
    finish_with_client,
    print_note,
    showing_warnings,
    until_signal,
    with_client,
)
from leasehold.cli.lock import GRACE_S
from leasehold.cli.output import emit_json, emit_lines, fixed_row, print_error, table
from leasehold.cli.parser import FAILURE, NOT_THERE, OK, Commands, add_group, epilog
from leasehold.cli.registry_views import item_json, item_row, shown_text
from leasehold.cli.settings.error_texts import shown

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.registry.health import HealthCheck
    from leasehold.registry.item_watch import ObservedChange
    from leasehold.registry.registered_service import RegisteredService
    from leasehold.registry.state import Item, Template

_GROUP_EPILOG: Final = """\
example:
  leasehold registry register web 127.0.0.1:8080 -- sleep 0.1
  leasehold registry lookup

A service is found while its lease is renewed, and removed when its process
ends, crashes or loses contact.
"""

MAX_LISTED: Final = 1_000_000
INTERVAL_S: Final = 10.0
TIMEOUT_S: Final = 5.0
TTL_S: Final = 15.0

_NAME: Final = argument_types.name("name", "web")
_TYPE: Final = argument_types.name("type", "web")
_TAG: Final = argument_types.name("tag", "v2")
_HEADS: Final = ("ID", "HEALTH", "ENDPOINT", "TYPES", "ATTRIBUTES")
_ID_COLUMNS: Final = 36
_CHANGE_COLUMNS: Final = 7


def add_command(commands: Commands) -> None:
    """Add `registry` and its subcommands."""
    group = add_group(
        commands,
        "registry",
        summary="register, find and watch services",
        description="Registration and lookup of services, on a Leasehold server or an etcd "
        "cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_add_register, _add_lookup, _add_watch, _add_browse):
        add(group)


# Register.


def _add_register(group: Commands) -> None:
    parser = group.add_parser(
        "register",
        help="keep a service registered",
        usage="%(prog)s NAME ENDPOINT [options] [-- COMMAND ...]",
        description=(
            "Register a service, run a command, and remove the service when the command ends. The "
            "exit code is that of the command, or 128 plus the number of the signal that killed "
            "it. Without a command, keep the service registered until Ctrl-C or until the end of "
            "standard input, if that is a terminal or a pipe."
        ),
        epilog=epilog(
            """
            leasehold registry register web 127.0.0.1:8080 -- sleep 0.1
            leasehold registry register db 127.0.0.1:5432 --check tcp://127.0.0.1:5432
            """,
            notes="If the lease is lost the service is registered again. After 3 failed "
            "checks a service is FAILING until 2 checks succeed; after 10 minutes it is removed "
            "until then. With a command and a check, it is FAILING until the second check that "
            "succeeds. If leasehold itself is killed, the command receives SIGTERM, "
            "and SIGKILL 3 seconds later.",
        ),
        takes_command=True,
    )
    parser.add_argument("name", type=_NAME, metavar="NAME", help="name of the service")
    parser.add_argument(
        "endpoint_of_service",
        type=argument_types.name("endpoint", "127.0.0.1:8080"),
        metavar="ENDPOINT",
        help="where the service is reached, such as 127.0.0.1:8080",
    )
    parser.add_argument(
        "--tag",
        type=_TAG,
        action="append",
        default=[],
        metavar="TAG",
        help="tag of the service; may be given several times",
    )
    parser.add_argument(
        "--metadata",
        type=_field,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="further attribute: a JSON value, or text; may be given several times",
    )
    parser.add_argument(
        "--check",
        type=_check,
        metavar="CHECK",
        help="health check: http://..., https://..., tcp://HOST:PORT, grpc://HOST:PORT[/SERVICE], "
        "grpcs://..., or exec:COMMAND",
    )
    parser.add_argument(
        "--check-interval",
        type=argument_types.term_s,
        default=INTERVAL_S,
        metavar="TIME",
        help="time between two checks (default: 10s)",
    )
    parser.add_argument(
        "--check-timeout",
        type=argument_types.term_s,
        default=TIMEOUT_S,
        metavar="TIME",
        help="time limit of a check (default: 5s)",
    )
    parser.add_argument(
        "--ttl",
        type=argument_types.term_s,
        default=TTL_S,
        metavar="TIME",
        help="TTL of the lease: after a crash the service is removed when it expires (default: "
        "15s)",
    )
    finish(parser, _register)


def _register(arguments: argparse.Namespace) -> int:
    async def work(client: "Client") -> int:
        pending = client.register(
            arguments.name,
            arguments.endpoint_of_service,
            tags=arguments.tag,
            metadata=dict(arguments.metadata),
            check=_check_of(arguments),
            ttl=arguments.ttl,
        )
        async with pending as service:
            if arguments.command is not None:
                return await _run_registered(arguments.command)
            return await _stay(service, arguments)

    ended = work if arguments.command else until_signal(work)
    return with_client(arguments, showing_warnings(ended))


def _check_of(arguments: argparse.Namespace) -> "HealthCheck | None":
    from leasehold.registry.state import Health

    check: HealthCheck | None = arguments.check
    return check and replace(
        check,
        interval=arguments.check_interval,
        timeout=arguments.check_timeout,
        start=Health.PASSING if arguments.command is None else Health.FAILING,
    )


class _NeverLost:
    """Lets a command run to its end (`supervised_command.HeldRight`)."""

    def __init__(self) -> None:
        from leasehold.sessions.kept_lease import Signal

        self.lost = Signal()

    @property
    def remaining(self) -> Duration:
        """How long the command may run."""
        return FOREVER


async def _run_registered(command: list[str]) -> int:
    from leasehold.cli.supervised_command import CommandEnd, SupervisedCommand

    supervised = SupervisedCommand(_NeverLost(), command, grace_s=GRACE_S, term_s=TTL_S)
    outcome = await supervised.run({})
    match outcome.end:
        case CommandEnd.FAILED:
            print_error(f"{shown(command[0])} cannot be run: {outcome.why}")
        case CommandEnd.UNGUARDED:
            print_error(f"{outcome.why}, so the command was ended")
            return FAILURE
    return outcome.code


async def _stay(service: "RegisteredService", arguments: argparse.Namespace) -> int:
    import asyncio

    from leasehold.cli.run_while_held import listening_for_end

    if arguments.json:
        emit_json({"event": "registered", "id": service.id})
    else:
        emit_lines([f"service {arguments.name} is registered as item {service.id}"])
    ended = asyncio.Event()
    with listening_for_end(ended):
        await ended.wait()
    return OK


# Look up.


def _add_template(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "types",
        type=_TYPE,
        nargs="*",
        metavar="TYPE",
        help="names of services, or other types; an item must have all of them",
    )
    parser.add_argument(
        "--tag",
        type=_TAG,
        action="append",
        default=[],
        metavar="TAG",
        help="only with this tag; may be given several times",
    )
    parser.add_argument("--id", type=_item_id, metavar="ID", help="only the item with this id")
    parser.add_argument(
        "--attribute",
        type=parse_attribute,
        action="append",
        default=[],
        metavar="KIND[:FIELD=VALUE]",
        help="only with an attribute set of this kind, in which the field has this value; may be "
        "given several times",
    )


def _template_of(arguments: argparse.Namespace) -> "Template":
    from leasehold.registry.codecs import service_template
    from leasehold.registry.named_items import TAG
    from leasehold.registry.state import attribute_set

    tags = [attribute_set(TAG, {"tag": tag}) for tag in arguments.tag]
    sets = [attribute_set(kind, dict(fields)) for kind, fields in arguments.attribute]
    return service_template(id=arguments.id or "", types=arguments.types, attributes=[*tags, *sets])


def _add_lookup(group: Commands) -> None:
    parser = group.add_parser(
        "lookup",
        help="list services and other items",
        description="List the items that match, with their health. Without arguments, list all.",
        epilog=epilog(
            """
            leasehold registry lookup
            leasehold registry lookup web --tag v2 --json || echo none
            leasehold registry lookup web --passing --print-endpoint-only || echo none
            """,
            NOT_THERE,
        ),
    )
    _add_template(parser)
    parser.add_argument(
        "--max", type=argument_types.count, metavar="N", help="list at most N items"
    )
    parser.add_argument("--passing", action="store_true", help="only items whose health is PASSING")
    parser.add_argument(
        "--print-endpoint-only", action="store_true", help="print only the endpoints"
    )
    finish_with_client(parser, _lookup)


async def _lookup(client: "Client", arguments: argparse.Namespace) -> int:
    template = _template_of(arguments)
    if arguments.passing:
        items: list[Item | None] = list(await client.registry.passing(template))
        total = len(items)
        items = items[: arguments.max]
    else:
        most = MAX_LISTED if arguments.max is None else arguments.max
        found = await client.registry.lookup(template, most)
        items, total = found.items, found.total
    if arguments.json:
        emit_json({"items": [item_json(item) for item in items], "total": total})
    elif arguments.print_endpoint_only:
        emit_lines([item.endpoint for item in items if item is not None])
    else:
        emit_lines(table(_HEADS, map(item_row, items)))
    return OK if total else NOT_THERE


# Watch.


def _add_watch(group: Commands) -> None:
    parser = group.add_parser(
        "watch",
        help="print services as they come and go",
        description=(
            "Print the items that match, and then each change, until Ctrl-C. It continues after a "
            "lost connection."
        ),
        epilog=epilog(
            """
            leasehold registry watch web
            leasehold registry watch web --passing --json
            """
        ),
    )
    _add_template(parser)
    parser.add_argument(
        "--passing",
        action="store_true",
        help="an item whose health is not PASSING does not match",
    )
    parser.add_argument(
        "--count",
        type=argument_types.count,
        metavar="N",
        help="end after N changes; the initial items count as well",
    )
    finish(parser, _watch)


def _watch(arguments: argparse.Namespace) -> int:
    wanted = list(map(shown_text, arguments.types))

    async def work(client: "Client") -> int:
        changes = client.registry.watched(_template_of(arguments), passing=arguments.passing)
        left = arguments.count
        print_note("watching items" + (f" of type {', '.join(wanted)}" if wanted else ""))
        async with aclosing(changes):
            async for change in changes:
                _print_change(change, is_json=arguments.json)
                left = None if left is None else left - 1
                if left == 0:
                    return OK
        return OK

    return with_client(arguments, showing_warnings(until_signal(work)))


def _print_change(change: "ObservedChange", *, is_json: bool) -> None:
    from leasehold.registry.named_items import CHANGE_KINDS

    kind = CHANGE_KINDS[change.transition].value
    item = change.before if change.item is None else change.item
    if is_json:
        emit_json({"change": kind, **item_json(item)})
        return
    _, *others = item_row(item)
    columns = (_CHANGE_COLUMNS, _ID_COLUMNS, 11, 24, 12)
    emit_lines([fixed_row((kind, change.id, *others), columns)])


# Browse.


def _add_browse(group: Commands) -> None:
    parser = group.add_parser(
        "browse",
        help="list types, attribute kinds or values",
        description=(
            "List the most specific types of the items that match, except those given; with "
            "--kinds the kinds of their attributes; with --values the values of a field."
        ),
        epilog=epilog(
            """
            leasehold registry browse
            leasehold registry browse web --kinds
            leasehold registry browse --values leasehold.Tag:tag
            """
        ),
    )
    _add_template(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prefix", default="", metavar="TEXT", help="only types that begin with it")
    what.add_argument("--kinds", action="store_true", help="list the kinds of attributes")
    what.add_argument(
        "--values", type=_field_of_kind, metavar="KIND:FIELD", help="list the values of a field"
    )
    finish_with_client(parser, _browse)


async def _browse(client: "Client", arguments: argparse.Namespace) -> int:
    template = _template_of(arguments)
    found: list[Any]
    if arguments.kinds:
        found = await client.registry.attribute_kinds(template)
    elif arguments.values is None:
        found = await client.registry.types(template, arguments.prefix)
    else:
        found = await _values(client, template, *arguments.values)
    if arguments.json:
        emit_json({"found": found})
    else:
        emit_lines(each if isinstance(each, str) else json.dumps(each) for each in found)
    return OK


async def _values(client: "Client", template: "Template", kind: str, field: str) -> list[Any]:
    from leasehold.registry.state import AttributeSet

    wanted = replace(template, attributes=(*template.attributes, AttributeSet(kind)))
    try:
        return await client.registry.field_values(wanted, len(template.attributes), field)
    except AttributeError as error:
        raise RefusedError(str(error)) from None


# Arguments.


def _check(text: str) -> "HealthCheck":
    from leasehold.registry.health import parse_check

    try:
        return parse_check(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _item_id(text: str) -> str:
    from leasehold.registry.messages import check_item_id

    try:
        return check_item_id(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not the id of an item: write it as it is printed, such as "
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
        ) from None


def _value(text: str) -> Any:
    """Return a JSON value; any other text is itself."""
    with suppress(ValueError):
        found = json.loads(text)
        if found is not None:
            return found
    return text


def _field(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not an attribute: write NAME=VALUE, such as zone=3"
        )
    return name, _value(value)


def parse_attribute(text: str) -> tuple[str, list[tuple[str, Any]]]:
    """Parse a kind of attribute sets, which may have the value of one field."""
    kind, separator, fields = text.partition(":")
    name, equals, value = fields.partition("=")
    if not kind or (separator and not (name and equals)):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not an attribute: write KIND or KIND:FIELD=VALUE, such as "
            "leasehold.Metadata:zone=3"
        )
    return kind, [(name, _value(value))] if fields else []


def _field_of_kind(text: str) -> tuple[str, str]:
    kind, _, field = text.rpartition(":")
    if not kind or not field:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a field: write KIND:FIELD, such as leasehold.Tag:tag"
        )
    return kind, field
