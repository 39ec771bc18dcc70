"""Fencing: how a resource refuses the writes of those who had the lock before.

A lock cannot stop a holder that was paused between its last check and its write. The resource can:
it keeps the highest fencing token that it has been shown, and takes nothing with a lower one.

    fence.py   `Fence`: in the memory of one process
    file.py    `FencedFile`: a file whose whole content is replaced, by any process of a machine
    sql.py     `fenced`: a transaction of a database

All three keep one rule: *the token is compared, kept, and the write done in one step*, so that no
other token comes in between.
"""

from leasehold.fencing.fence import Fence
from leasehold.fencing.file import FencedFile
from leasehold.fencing.sql import fenced, make_fence_table

__all__ = ["Fence", "FencedFile", "fenced", "make_fence_table"]
