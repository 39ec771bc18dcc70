"""Commands for objects with a lease: renewal sets, mailboxes, registrations of discovery.

Each object is on the server, is named by its id, and lives until its lease ends. So the commands
that create, renew, watch and destroy one are the same for all kinds, except for words.
"""

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from leasehold.basics.durations import ANY, Duration, seconds_of
from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_remaining, shown_term
from leasehold.cli.connection import (
    Work,
    error_text,
    finish,
    finish_with_client,
    require_leasehold,
    until_signal,
    with_client,
)
from leasehold.cli.output import emit_json, emit_lines, number, print_error, shown_bytes
from leasehold.cli.parser import FAILURE, LOST, NOT_THERE, OK, Commands, epilog
from leasehold.cli.settings.value_types import FOREVER_WORD
from leasehold.errors import CallRefused, LeaseholdError, NoSuchObject, UnknownLease

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.discovery.client import DiscoveryRegistration
    from leasehold.events.client import Mailbox
    from leasehold.leases.lease import Lease
    from leasehold.renewal.client import RenewalSet


class LeasedObject(Protocol):
    """A `RenewalSet`, a `Mailbox` or a `DiscoveryRegistration`."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def lease(self) -> "Lease":
        """The lease that it ends with."""
        ...


T_co = TypeVar("T_co", bound=LeasedObject, covariant=True)


@dataclass(frozen=True)
class ObjectKind(Generic[T_co]):
    """A kind of objects: its words, and its commands."""

    command: str
    """Its commands begin with it."""
    name: str
    short_name: str
    plural: str
    metavar: str
    service: str
    """The service in its `NoSuchObject`."""
    required: str
    """The subject of the error on an etcd, such as "a mailbox"."""
    term_option: str
    find: "Callable[[Client, str], Awaitable[T_co]]"

    # Arguments.

    @property
    def id_type(self) -> Callable[[str], str]:
        """The parser of its ids."""
        return argument_types.record_id(self.name)

    @property
    def id_help(self) -> str:
        """The help of an argument that is an id."""
        return f"id of the {self.short_name}, 32 hexadecimal digits as they are printed"

    def add_id(self, parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
        """Add the argument for the id; it is `arguments.id`."""
        parser.add_argument(
            "id", type=self.id_type, nargs=nargs, metavar=self.metavar, help=self.id_help
        )

    def add_term(self, parser: argparse.ArgumentParser) -> None:
        """Add the option for the term of the lease; it is `arguments.term`."""
        parser.add_argument(
            self.term_option,
            dest="term",
            type=argument_types.term_or_forever,
            default=ANY,
            metavar="TIME",
            help=f"how long the {self.short_name} lives unless it is renewed, such as 2h, or "
            "forever; the server has a limit (default: the server chooses)",
        )

    # Finding and creating.

    async def found(self, client: "Client", object_id: str) -> T_co:
        """Return an existing object; raises `NoSuchObject`."""
        self.check_server(client)
        return await self.find(client, object_id)

    def check_server(self, client: "Client") -> None:
        """Raise `RefusedError` if the server is an etcd."""
        require_leasehold(client, self.required)

    def print_created(
        self, arguments: argparse.Namespace, made: LeasedObject, mailbox: str = ""
    ) -> None:
        """Print an object that was created, or only its id; `mailbox` receives its events."""
        if arguments.print_id_only:
            emit_lines([made.id])
        else:
            self._print_term(arguments, made, "created", mailbox)

    def _print_term(
        self, arguments: argparse.Namespace, made: LeasedObject, done: str, mailbox: str = ""
    ) -> None:
        term_s = seconds_of(made.lease.term)
        if arguments.json:
            with_mailbox = {"mailbox": mailbox} if mailbox else {}
            ttl, grantor = seconds_json(term_s), made.lease.grantor
            emit_json({"id": made.id, "ttl": ttl, "grantor": grantor, **with_mailbox})
        else:
            ending = f", with mailbox {mailbox}" if mailbox else ""
            emit_lines([f"{self.name} {made.id} {done} for {shown_term(term_s)}{ending}"])

    # Renew.

    def add_renew(self, group: Commands, *, description: str, example: str) -> None:
        """Add the command `renew`."""
        parser = group.add_parser(
            "renew",
            help=f"renew the lease of a {self.short_name}",
            description=description,
            epilog=epilog(example, NOT_THERE),
        )
        self.add_id(parser)
        self.add_term(parser)
        finish_with_client(parser, self._renew)

    async def _renew(self, client: "Client", arguments: argparse.Namespace) -> int:
        found = await self.found(client, arguments.id)
        try:
            await found.lease.renew(arguments.term)
        except UnknownLease:
            raise NoSuchObject(self.service, arguments.id) from None
        self._print_term(arguments, found, "renewed")
        return OK

    # Watch.

    def add_watch(
        self,
        group: Commands,
        run: Callable[[argparse.Namespace], int],
        *,
        summary: str,
        description: str,
        example: str,
        notes: str,
    ) -> argparse.ArgumentParser:
        """Add the command `watch`, and return its parser; `run` calls `run_watch`."""
        parser = group.add_parser(
            "watch",
            help=summary,
            description=description,
            epilog=epilog(example, NOT_THERE, LOST, notes=notes),
            takes_command=True,
            usage=f"leasehold {self.command} watch {self.metavar} [options] [-- COMMAND...]",
        )
        self.add_id(parser)
        parser.add_argument(
            "--count", type=argument_types.count, metavar="N", help="end after N events"
        )
        finish(parser, run)
        return parser

    # Destroy.

    def add_destroy(self, group: Commands, *, consequence: str, example: str) -> None:
        """Add the command `destroy`; `consequence` is the rest of its description."""
        parser = group.add_parser(
            "destroy",
            help=f"end {self.plural}",
            description=f"End {self.plural} immediately. {consequence}",
            epilog=epilog(example, NOT_THERE),
        )
        self.add_id(parser, "+")
        finish_with_client(parser, self._destroy)

    async def _destroy(self, client: "Client", arguments: argparse.Namespace) -> int:
        ids = list(dict.fromkeys(arguments.id))
        failures: dict[str, LeaseholdError] = {}
        for each in ids:
            try:
                await self._end(client, each)
            except (NoSuchObject, CallRefused) as error:
                failures[each] = error
            else:
                if not arguments.json:
                    emit_lines([f"{self.name} {each} has ended"])
        if arguments.json:
            errors = {each: {"error": error_text(error)} for each, error in failures.items()}
            emit_json({"ended": [{"id": each, **errors.get(each, {})} for each in ids]})
        for failure in failures.values():
            print_error(error_text(failure))
        missing = all(isinstance(each, NoSuchObject) for each in failures.values())
        return OK if not failures else NOT_THERE if missing else FAILURE

    async def _end(self, client: "Client", object_id: str) -> None:
        found = await self.found(client, object_id)
        try:
            await found.lease.cancel()
        except UnknownLease:
            raise NoSuchObject(self.service, object_id) from None


RENEWAL_SET: Final["ObjectKind[RenewalSet]"] = ObjectKind(
    command="renewal",
    name="renewal set",
    short_name="set",
    plural="sets",
    metavar="SET",
    service="renewal",
    required="a renewal set",
    term_option="--ttl",
    find=lambda client, set_id: client.renewal_set(id=set_id),
)
MAILBOX: Final["ObjectKind[Mailbox]"] = ObjectKind(
    command="events",
    name="mailbox",
    short_name="mailbox",
    plural="mailboxes",
    metavar="MAILBOX",
    service="mailboxes",
    required="a mailbox",
    term_option="--ttl",
    find=lambda client, mailbox_id: client.mailbox(id=mailbox_id),
)
REGISTRATION: Final["ObjectKind[DiscoveryRegistration]"] = ObjectKind(
    command="discovery",
    name="discovery registration",
    short_name="registration",
    plural="registrations",
    metavar="ID",
    service="discovery",
    required="the discovery service",
    term_option="--duration",
    find=lambda client, registration: client.discovery_service.registration(registration),
)


# Watching.

RETRIED: Final = (
    "After any other code the command is started again with the same event, after 1s, 5s, 10s, "
    "1m, 1m and then every 5m, and later events wait."
)
REMOVED: Final = (
    "An event that was printed, or whose command has ended with exit code 0, is removed from the "
    f"mailbox. {RETRIED}"
)
"""Notes on how commands handle events."""


def run_watch(arguments: argparse.Namespace, work: Work) -> int:
    """Run the work of a command `watch` until a signal; return the exit code."""
    from leasehold.cli.event_watch import cannot_run

    if (code := cannot_run(arguments.command)) is not None:
        return code
    return with_client(arguments, until_signal(work))


# Output.


def remaining_text(remaining: Duration) -> str:
    """Format the remaining time of a lease."""
    remaining_s = seconds_of(remaining)
    if remaining_s == float("inf"):
        return FOREVER_WORD
    return "ended" if remaining_s < 0 else shown_remaining(remaining_s)


def seconds_json(duration: Duration) -> float | None:
    """Return a duration for JSON; None if it is endless."""
    seconds = seconds_of(duration)
    return None if seconds == float("inf") else number(seconds)


def listener_text(endpoint: str, listener: str, undelivered: int) -> str:
    """Format a listener, and the number of events that it has not received."""
    where = shown_bytes(endpoint.encode()) or f"mailbox {listener}"
    return f"{where} ({undelivered} undelivered)" if undelivered else where
