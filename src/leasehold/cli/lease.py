"""`leasehold lease`: grant, renew, revoke and keep leases; `lease_views` has the other commands."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli import argument_types
from leasehold.cli.argument_types import shown_id, shown_term
from leasehold.cli.connection import (
    error_text,
    finish,
    finish_with_client,
    lease_service,
    remote,
    with_client,
)
from leasehold.cli.output import emit_json, emit_lines, number, print_error
from leasehold.cli.parser import (
    FAILURE,
    LOST,
    NOT_THERE,
    OK,
    USAGE_ERROR,
    Commands,
    add_group,
    epilog,
)
from leasehold.cli.signals import SIGNALS
from leasehold.errors import LeaseholdError, LeaseLost, UnknownLease

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.engine.values import LeaseInfo
    from leasehold.sessions.held_lease import HeldLease

END_S: Final = 5.0
"""How long revoking a lease may take when the command ends."""

ID_HELP: Final = "lease id in hexadecimal, as it is printed, or dec:N in decimal"
HOLDER: Final = argument_types.name("holder", "anna")

_GROUP_EPILOG: Final = """\
example:
  leasehold lease grant 60
  leasehold lease list

Lease ids are hexadecimal, with or without 0x, as `etcdctl lease list` prints
them. Write a decimal id as dec:31249; with more than 16 digits it needs no dec:.
"""


def add_command(commands: Commands) -> None:
    """Add `lease` and its subcommands."""
    from leasehold.cli.lease_views import VIEWS  # it imports this module

    group = add_group(
        commands,
        "lease",
        summary="grant, renew, keep, revoke, list and watch leases",
        description="Leases on a Leasehold server or an etcd cluster.",
        epilog=_GROUP_EPILOG,
    )
    for add in (_add_grant, _add_renew, _add_keep, _add_revoke, *VIEWS):
        add(group)


def _add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", type=argument_types.lease_id, nargs="+", metavar="ID", help=ID_HELP)


def _add_no_revoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-revoke", action="store_true", help="let kept leases expire instead of revoking them"
    )


# Grant.


def _add_grant(group: Commands) -> None:
    parser = group.add_parser(
        "grant",
        help="grant a lease",
        description="Grant a lease, which expires unless it is renewed within its TTL.",
        epilog=epilog(
            """
            leasehold lease grant 60
            leasehold lease grant 1m30s --holder anna
            leasehold kv put w/7 up --lease $(leasehold lease grant 60 --print-id-only)
            leasehold lease grant 10 --keep
            """,
            LOST,
            notes="With --keep the command renews the lease until Ctrl-C, and then revokes it, "
            "which deletes its keys.",
        ),
    )
    parser.add_argument(
        "ttl",
        type=argument_types.term_s,
        metavar="TTL",
        help="TTL in seconds, or with a unit, such as 500ms or 1m30s",
    )
    parser.add_argument(
        "--id",
        type=argument_types.lease_id,
        metavar="ID",
        help="lease id (default: chosen by the server)",
    )
    parser.add_argument(
        "--holder", type=HOLDER, metavar="NAME", help="name of the holder (Leasehold server only)"
    )
    parser.add_argument(
        "--policy",
        type=argument_types.name("policy", "workers"),
        metavar="NAME",
        help="server policy that limits the TTL (Leasehold server only)",
    )
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument("--keep", action="store_true", help="renew the lease until Ctrl-C")
    exclusive.add_argument("--print-id-only", action="store_true", help="print only the lease id")
    _add_no_revoke(parser)
    finish(parser, _grant)


def _grant(arguments: argparse.Namespace) -> int:
    if arguments.no_revoke and not arguments.keep:
        print_error("--no-revoke requires --keep: give both or neither")
        return USAGE_ERROR

    async def work(client: "Client") -> int:
        granted = await _begin(client, arguments)
        if arguments.keep:
            return await _keep_new(client, granted, arguments)
        if arguments.print_id_only:
            emit_lines([shown_id(granted.id)])
        elif arguments.json:
            emit_json({"id": shown_id(granted.id), "ttl": number(granted.ttl)})
        else:
            emit_lines([f"lease {shown_id(granted.id)} granted for {shown_term(granted.ttl)}"])
        return OK

    return with_client(arguments, work)


async def _begin(client: "Client", arguments: argparse.Namespace) -> "LeaseInfo":
    """Grant a lease, with the features of a Leasehold server if they are requested."""
    holder, policy = arguments.holder or "", arguments.policy or ""
    if not holder and not policy:
        return await client.engine.grant(arguments.ttl, lease=arguments.id or 0)
    service = lease_service(client, "--holder" if holder else "--policy")
    return await service.grant(arguments.ttl, lease=arguments.id or 0, holder=holder, policy=policy)


# Renew.


def _add_renew(group: Commands) -> None:
    parser = group.add_parser(
        "renew",
        help="renew leases once",
        description="Renew leases once, each for its full TTL.",
        epilog=epilog(
            """
            leasehold lease grant 60 --id 7a11
            leasehold lease renew 7a11
            """,
            NOT_THERE,
        ),
    )
    _add_ids(parser)
    finish_with_client(parser, _renew)


async def _renew(client: "Client", arguments: argparse.Namespace) -> int:
    ids = list(dict.fromkeys(arguments.ids))
    renewed = await client.engine.renew_all(ids)
    lines = [
        f"lease {shown_id(each)} renewed for {shown_term(renewed.terms[each])}"
        for each in ids
        if each in renewed.terms
    ]
    done = {each: {"ttl": number(term)} for each, term in renewed.terms.items()}
    return _print_each(arguments, ids, done, dict(renewed.failures), lines)


# Revoke.


def _add_revoke(group: Commands) -> None:
    parser = group.add_parser(
        "revoke",
        help="revoke leases and delete their keys",
        description="Revoke leases immediately, whichever client holds them. "
        "Their keys are deleted.",
        epilog=epilog(
            """
            leasehold lease grant 60 --id 7a13
            leasehold lease revoke 7a13
            """,
            NOT_THERE,
        ),
    )
    _add_ids(parser)
    finish_with_client(parser, _revoke)


async def _revoke(client: "Client", arguments: argparse.Namespace) -> int:
    ids = list(dict.fromkeys(arguments.ids))
    done: dict[int, dict[str, Any]] = {}
    failures: dict[int, Exception] = {}
    for each in ids:
        try:
            await client.revoke(each)
        except UnknownLease as error:
            failures[each] = error
        else:
            done[each] = {}
    lines = [f"lease {shown_id(each)} revoked" for each in done]
    return _print_each(arguments, ids, done, failures, lines)


def _print_each(
    arguments: argparse.Namespace,
    ids: Sequence[int],
    done: dict[int, dict[str, Any]],
    failures: dict[int, Exception],
    lines: Sequence[str],
) -> int:
    if arguments.json:
        outcomes = [
            {"id": shown_id(each)}
            | (done[each] if each in done else {"error": error_text(failures[each])})
            for each in ids
        ]
        emit_json({"leases": outcomes})
    elif lines:
        emit_lines(lines)
    for error in failures.values():
        print_error(error_text(error))
    if not failures:
        return OK
    missing = all(isinstance(error, UnknownLease) for error in failures.values())
    return NOT_THERE if missing else FAILURE


# Keep alive.


def _add_keep(group: Commands) -> None:
    parser = group.add_parser(
        "keep",
        help="renew leases until Ctrl-C",
        description=(
            "Renew existing leases until Ctrl-C, and report each that is lost. At the end they are "
            "revoked, which deletes their keys."
        ),
        epilog=epilog(
            """
            leasehold lease grant 60 --id 7a12
            leasehold lease keep 7a12
            """,
            NOT_THERE,
            LOST,
            notes="The command also ends when all leases are lost.",
        ),
    )
    _add_ids(parser)
    _add_no_revoke(parser)
    finish_with_client(parser, _keep)


async def _keep(client: "Client", arguments: argparse.Namespace) -> int:
    keeping = _Keeping(client, is_json=arguments.json)
    await keeping.begin(list(dict.fromkeys(arguments.ids)))
    return await keeping.go_on(revoke=not arguments.no_revoke)


async def _keep_new(client: "Client", granted: "LeaseInfo", arguments: argparse.Namespace) -> int:
    """Keep a lease alive that was granted for this. If that fails, it is revoked."""
    keeping = _Keeping(client, is_json=arguments.json)
    try:
        await keeping.begin([granted.id], is_new=True)
    except BaseException:
        await keeping.revoke(granted.id)
        raise
    return await keeping.go_on(revoke=not arguments.no_revoke)


class _Keeping:
    """Leases that are kept alive, and the output about them."""

    def __init__(self, client: "Client", *, is_json: bool) -> None:
        import asyncio

        self._client = client
        self._is_json = is_json
        self._held: list[HeldLease] = []
        self._events: asyncio.Queue[tuple[str, HeldLease, str]] = asyncio.Queue()

    async def go_on(self, *, revoke: bool) -> int:
        """Keep them alive; return the exit code."""
        import asyncio

        if remote(self._client).server.may_renew_when_deposed:
            print_error(
                f"warning: {remote(self._client).server} may confirm a renewal that had no effect, "
                "shortly after a leader change: use etcd 3.5.20 or later"
            )
        left, is_lost = len(self._held), False
        try:
            while left:
                kind, lease, why = await self._events.get()
                self._print(kind, lease, why)
                is_lost |= kind == "lost"
                left -= kind == "lost"
        except asyncio.CancelledError:
            if SIGNALS.received is None:
                raise
        except BaseException:
            self._release_all(revoke=revoke)
            raise
        await self._end(revoke=revoke)
        return LOST if is_lost else OK

    async def begin(self, ids: Sequence[int], *, is_new: bool = False) -> None:
        """Start with all of them or with none. Leases that existed before stay as they are."""
        try:
            for each in ids:
                lease = await self._client.keep(
                    each, on_jeopardy=self._on_jeopardy, on_loss=self._on_loss
                )
                self._held.append(lease)
        except BaseException:
            self._release_all(revoke=False)
            raise
        for lease in self._held:
            if is_new:
                self._print("granted", lease)
            self._print("kept", lease)

    def _release_all(self, *, revoke: bool) -> None:
        if not revoke:
            for lease in self._held:
                lease.release()

    async def _end(self, *, revoke: bool) -> None:
        for lease in self._held:
            if lease.lost:
                continue
            lease.release()
            if not revoke:
                self._print("released", lease)
            elif (why := await self.revoke(lease.id)) is None:
                self._print("ended", lease)
            else:
                print_error(f"lease {shown_id(lease.id)} was not revoked and will expire: {why}")

    async def revoke(self, lease: int) -> str | None:
        """Revoke a lease; return the reason if that failed."""
        try:
            await self._client.revoke(lease, timeout=END_S)
        except UnknownLease:
            return None  # it has already ended
        except (LeaseholdError, OSError, TimeoutError) as error:
            return error_text(error)
        return None

    def _on_jeopardy(self, lease: "HeldLease", error: BaseException | None) -> None:
        self._events.put_nowait(("jeopardy", lease, "" if error is None else error_text(error)))

    def _on_loss(self, lease: "HeldLease", _: BaseException | None) -> None:
        try:
            lease.check()
        except LeaseLost as error:
            self._events.put_nowait(("lost", lease, error.why))

    def _print(self, kind: str, lease: "HeldLease", why: str = "") -> None:
        name = shown_id(lease.id)
        if self._is_json:
            term = {"ttl": number(lease.holding.term_s)} if kind in ("granted", "kept") else {}
            emit_json({"event": kind, "id": name, **term, **({"why": why} if why else {})})
            return
        match kind:
            case "granted":
                line = f"lease {name} granted for {shown_term(lease.holding.term_s)}"
            case "kept":
                line = (
                    f"lease {name} is kept alive with a TTL of {shown_term(lease.holding.term_s)}"
                )
            case "jeopardy":
                line = f"lease {name} is in jeopardy: not renewed for a third of its TTL: {why}"
            case "lost":
                line = f"lease {name} is lost: {why}"
            case "released":
                line = f"lease {name} is no longer renewed and will expire"
            case _:
                line = f"lease {name} revoked"
        emit_lines([line])
