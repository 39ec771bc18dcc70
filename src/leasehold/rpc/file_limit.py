"""How many files this process may have open: each connection is one."""

import contextlib
import resource

from leasehold.rpc.admission import MAX_CONNECTIONS, RESERVED_FILES


def open_files() -> int:
    """Return the limit on open files that is in force (the soft limit)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = MAX_CONNECTIONS + RESERVED_FILES
    return enough if soft == resource.RLIM_INFINITY else soft


def raise_file_limit() -> int:
    """Raise the soft limit as far as connections need it and the hard limit allows; return it.

    It changes the whole process, so only a program that is a server calls it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files()
