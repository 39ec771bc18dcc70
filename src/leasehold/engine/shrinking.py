"""Shrinking: a journal's file gives back the space that nothing is in any more.

A compaction leaves free pages all over the file, which later changes use again; the file itself
gets no shorter. Shrinking moves pages from its end to free places, some at a time, with commits in
between, and without a second copy of the data. The file is cut off at the next checkpoint.
"""

import time
from typing import Final

import apsw

PAGES_AT_ONCE: Final = 64
"""Pages moved between two looks at the clock."""

SHRINK_S: Final = 0.005
"""How long a commit may have to wait for pages that are being moved."""

_INCREMENTALLY: Final = 2


def prepare(connection: apsw.Connection) -> None:
    """Have SQLite keep account of who uses which page; before there is any table."""
    connection.execute(f"PRAGMA auto_vacuum={_INCREMENTALLY}")


def free_pages(connection: apsw.Connection) -> int:
    """Count the pages that could be given back; none in a file that is not prepared for that."""
    if connection.pragma("auto_vacuum") != _INCREMENTALLY:
        return 0
    return int(connection.pragma("freelist_count"))


def shrink(connection: apsw.Connection) -> int | None:
    """Give some pages back, in one transaction; return how many are left.

    None if the account of pages is damaged: it is used for nothing else, so nothing is lost.
    """
    until = time.perf_counter() + SHRINK_S
    left = free_pages(connection)
    try:
        with connection:
            while left and time.perf_counter() < until:
                # Its rows are the pages: it does nothing further once nobody asks for more.
                connection.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
                left = free_pages(connection)
    except apsw.CorruptError:
        return None
    return left
