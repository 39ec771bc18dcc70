"""Lease ids as text: one form for messages, logs, reprs and the command line."""


def shown_lease(lease: object) -> str:
    """Format a lease id as `etcdctl` does: 16 lower-case hexadecimal digits.

    An example is "694d81f5a2c0ca0d". A negative id has a minus sign and at least 15 digits, as with
    Go's `%016x`. A landlord's cookie need not be an integer; other objects are shown by `repr`.
    """
    if isinstance(lease, int) and not isinstance(lease, bool):
        return f"{lease:016x}"
    return repr(lease)
