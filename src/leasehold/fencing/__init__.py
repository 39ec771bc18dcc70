"""Fencing: how a resource refuses the writes of earlier holders of a lock.

A lock cannot stop a holder that was paused between its last check and its write. The resource can:
it stores the highest fencing token that it has received, and refuses writes with a lower one.

    token.py         `Token`, and `Fence`: in the memory of one process
    fenced_file.py   `FencedFile`: a file that is replaced as a whole, by any process of a machine
    fenced_sql.py    `fenced`: a transaction of a database

All three follow one rule: *the token is compared and stored, and the write done, in one step*, so
that no other token comes in between.
"""

from leasehold.fencing.fenced_file import FencedFile
from leasehold.fencing.fenced_sql import fenced, make_fence_table
from leasehold.fencing.token import Fence

__all__ = ["Fence", "FencedFile", "fenced", "make_fence_table"]
