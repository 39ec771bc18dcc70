"""What the owner of a lock does for those who wait: gives it up, or says no."""

from typing import TYPE_CHECKING

from leasehold.core.ops import Compare, Delete, Put, Range, Step
from leasehold.engine.values import KeyValue
from leasehold.errors import LeaseholdError, NoSpace
from leasehold.recipes.contending import PAGE, contenders, created_at
from leasehold.recipes.naming import Claim, line
from leasehold.recipes.session import OutcomeUnknown

if TYPE_CHECKING:
    from leasehold.recipes.tenure import Tenure


async def give_up(tenure: "Tenure", heir: KeyValue | None) -> None:
    """Delete the key of a lock, and pass on to the next in line how often it was acquired.

    Returns when the key is gone, whoever has deleted it. Raises `SessionExpired`.
    """
    name = tenure.cell.name
    look = [Range(tenure.key), line(name, limit=PAGE, after=tenure.revision)]
    while True:
        claim = None if heir is None else Claim.decode(heir.value)
        compares: list[Compare] = [created_at(tenure.key, tenure.revision)]
        steps: list[Step] = [Delete(tenure.key)]
        if heir is not None and claim is not None and tenure.total:
            left = Claim(claim.who, tenure.total, claim.tries)
            compares.append(created_at(heir.key, heir.create_revision))
            steps.append(Put(heir.key, left.encode(), lease=None))
        try:
            done = await tenure.session.write(compares, steps, look)
        except OutcomeUnknown:
            continue
        except NoSpace:
            if len(steps) == 1:
                raise
            heir = None  # what must be done needs no space
            continue
        if done.succeeded or not _is_there(tenure, done.results[0].pairs):
            return
        heir = next(iter(contenders(name, done.results[1])), None)  # the one before has left


def _is_there(tenure: "Tenure", pairs: list[KeyValue]) -> bool:
    return bool(pairs) and pairs[0].create_revision == tenure.revision


async def refuse(tenure: "Tenure", who: str, waiter: int) -> None:
    """Say to the waiter whose key was created at this revision that the lock is in use."""
    mark = Claim(who, tenure.total, denies=waiter).encode()
    mine = created_at(tenure.key, tenure.revision)
    try:
        await tenure.session.write([mine], [Put(tenure.key, mark, lease=None)])
    except OutcomeUnknown:
        return  # it does not wait for long
    except LeaseholdError:
        tenure.session.check()  # else it is denied when its patience is over
