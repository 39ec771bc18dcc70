"""Items that match a template, as they change: watched over lost connections.

A source yields a snapshot, and then changes. When it fails another one is begun: its snapshot is
compared with the items that are known, and what differs is a change. So a watch that is read
applies to the set of its start, and gives the set that matches now; several changes of one item
while there was no connection are one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from random import Random
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from leasehold.basics.backoff import Backoff, exponential
from leasehold.errors import LeaseholdError, is_definite
from leasehold.registry.messages import item_of
from leasehold.registry.state import Item, Template, Transition
from leasehold.wire import registry_pb2 as pb

logger = logging.getLogger(__name__)

RETRIES: Final = exponential(0.1, 5.0)
"""The longest waits before a watch is begun again."""


class ObservedChange(NamedTuple):
    """An item has begun or ceased to match, or has changed."""

    transition: Transition
    id: str
    item: Item | None
    """Its new state; None if it does not match any more."""
    before: Item | None
    """The state before; None if it did not match."""


class Update(NamedTuple):
    """A message of a source: all items that match, or changes of some."""

    snapshot: Mapping[str, Item] | None
    changes: Iterable[tuple[str, Item | None]] = ()


def changes_between(before: Mapping[str, Item], after: Mapping[str, Item]) -> list[ObservedChange]:
    """Return the changes from one set of items to another, in the order of their ids."""
    found: list[ObservedChange] = []
    for item_id in sorted({*before, *after}):
        change = _change(item_id, before.get(item_id), after.get(item_id))
        if change is not None:
            found.append(change)
    return found


def _change(item_id: str, before: Item | None, after: Item | None) -> ObservedChange | None:
    if before == after:
        return None
    if before is None:
        return ObservedChange(Transition.NOMATCH_MATCH, item_id, after, None)
    if after is None:
        return ObservedChange(Transition.MATCH_NOMATCH, item_id, None, before)
    return ObservedChange(Transition.MATCH_MATCH, item_id, after, before)


async def watch_items(
    begin: Callable[[], AsyncGenerator[Update, None]],
    template: Template,
    passing: bool,
) -> AsyncGenerator[ObservedChange, None]:
    """Yield the items that match, as changes, and then their changes.

    `begin` begins a source, repeatedly as its calls fail. A definite error is raised.
    """
    backoff = Backoff(RETRIES, Random())  # noqa: S311  spreads retries
    items: dict[str, Item] = {}

    def matches(item: Item | None) -> bool:
        return item is not None and template.matches(item) and (item.is_passing or not passing)

    while True:
        try:
            async with aclosing(begin()) as updates:
                async for update in updates:
                    backoff.reset()
                    if update.snapshot is not None:
                        after = {
                            key: each for key, each in update.snapshot.items() if matches(each)
                        }
                        changes = changes_between(items, after)
                    else:
                        changes = []
                        known = dict(items)
                        for item_id, item in update.changes:
                            new = item if matches(item) else None
                            change = _change(item_id, known.get(item_id), new)
                            if change is not None:
                                _apply(known, change)
                                changes.append(change)
                    for change in changes:
                        _apply(items, change)
                        yield change
        except (LeaseholdError, OSError) as error:
            if is_definite(error):
                raise
            logger.info("a watch of the registry was interrupted and is started again: %s", error)
        await asyncio.sleep(backoff.next_s())


def _apply(items: dict[str, Item], change: ObservedChange) -> None:
    if change.item is None:
        items.pop(change.id, None)
    else:
        items[change.id] = change.item


def decoded_item(data: bytes) -> Item | None:
    """Return an item out of its message; None if that is empty, or cannot be decoded."""
    try:
        return item_of(pb.ServiceItem.FromString(data)) if data else None
    except (DecodeError, ValueError):
        return None
