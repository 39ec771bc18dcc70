"""How many sockets a process may have."""

import resource


def raise_file_limit() -> int:
    """Have as many files as the system allows this process, and say how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
