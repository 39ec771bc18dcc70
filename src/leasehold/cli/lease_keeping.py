"""Keeping leases alive from a command, until it is told to end."""

import argparse
import asyncio
from collections.abc import Sequence
from typing import Final

from leasehold.cli.connection import remote, said
from leasehold.cli.exits import LOST, OK
from leasehold.cli.printing import emit_json, emit_lines, number
from leasehold.cli.reporting import complain
from leasehold.cli.signals import SIGNALS
from leasehold.cli.words import shown_id, shown_term
from leasehold.client.client import Client
from leasehold.client.held_lease import HeldLease
from leasehold.engine.values import LeaseInfo
from leasehold.errors import LeaseholdError, LeaseLost, UnknownLease

END_S: Final = 5.0
"""How long ending a lease may take, when the command is told to end."""


async def keep(client: Client, ids: Sequence[int], arguments: argparse.Namespace) -> int:
    """Keep leases until a signal comes, or none is left; then end them, unless told otherwise."""
    keeping = _Keeping(client, is_json=arguments.json)
    await keeping.begin(ids)
    return await keeping.go_on(revoke=not arguments.no_revoke)


async def keep_new(client: Client, granted: LeaseInfo, arguments: argparse.Namespace) -> int:
    """Keep a lease that was begun for this; if that fails, nothing is left of it."""
    keeping = _Keeping(client, is_json=arguments.json)
    try:
        await keeping.begin([granted.id], is_new=True)
    except BaseException:
        await keeping.revoke(granted.id)
        raise
    return await keeping.go_on(revoke=not arguments.no_revoke)


class _Keeping:
    """Leases that are kept, and what is said of them."""

    def __init__(self, client: Client, *, is_json: bool) -> None:
        self._client = client
        self._is_json = is_json
        self._held: list[HeldLease] = []
        self._news: asyncio.Queue[tuple[str, HeldLease, str]] = asyncio.Queue()

    async def go_on(self, *, revoke: bool) -> int:
        """Keep them; return the exit code."""
        if remote(self._client).server.may_renew_when_deposed:
            complain(
                f"warning: {remote(self._client).server} may confirm a "
                "renewal that did not happen, "
                "shortly after a change of its leader; 3.5.20 and later do not"
            )
        left, is_lost = len(self._held), False
        try:
            while left:
                kind, lease, why = await self._news.get()
                self._say(kind, lease, why)
                is_lost |= kind == "lost"
                left -= kind == "lost"
        except asyncio.CancelledError:
            if SIGNALS.heard is None:
                raise
        except BaseException:
            self._let_go(revoke=revoke)
            raise
        await self._end(revoke=revoke)
        return LOST if is_lost else OK

    async def begin(self, ids: Sequence[int], *, is_new: bool = False) -> None:
        """Begin with all of them, or with none: those that are there already stay as they are."""
        try:
            for each in ids:
                lease = await self._client.keep(
                    each, on_jeopardy=self._note_jeopardy, on_loss=self._note_loss
                )
                self._held.append(lease)
        except BaseException:
            self._let_go(revoke=False)
            raise
        for lease in self._held:
            if is_new:
                self._say("granted", lease)
            self._say("kept", lease)

    def _let_go(self, *, revoke: bool) -> None:
        if not revoke:
            for lease in self._held:
                lease.release()

    async def _end(self, *, revoke: bool) -> None:
        for lease in self._held:
            if lease.lost:
                continue
            lease.release()
            if not revoke:
                self._say("released", lease)
            elif (why := await self.revoke(lease.id)) is None:
                self._say("ended", lease)
            else:
                complain(f"lease {shown_id(lease.id)} was not revoked and will expire: {why}")

    async def revoke(self, lease: int) -> str | None:
        """End a lease; say why that did not work, if it did not."""
        try:
            await self._client.revoke(lease, timeout=END_S)
        except UnknownLease:
            return None  # it is over already
        except (LeaseholdError, OSError, TimeoutError) as error:
            return said(error)
        return None

    def _note_jeopardy(self, lease: HeldLease, error: BaseException | None) -> None:
        self._news.put_nowait(("jeopardy", lease, "" if error is None else said(error)))

    def _note_loss(self, lease: HeldLease, _: BaseException | None) -> None:
        try:
            lease.check()
        except LeaseLost as error:
            self._news.put_nowait(("lost", lease, error.why))

    def _say(self, kind: str, lease: HeldLease, why: str = "") -> None:
        name = shown_id(lease.id)
        if self._is_json:
            term = {"ttl": number(lease.holding.term_s)} if kind in ("granted", "kept") else {}
            emit_json({"event": kind, "id": name, **term, **({"why": why} if why else {})})
            return
        match kind:
            case "granted":
                line = f"lease {name} granted for {shown_term(lease.holding.term_s)}"
            case "kept":
                line = f"lease {name} is kept alive, {shown_term(lease.holding.term_s)} at a time"
            case "jeopardy":
                line = f"lease {name} is in jeopardy: not renewed for a third of its TTL: {why}"
            case "lost":
                line = f"lease {name} is lost: {why}"
            case "released":
                line = f"lease {name} is no longer renewed and will expire"
            case _:
                line = f"lease {name} ended"
        emit_lines([line])
