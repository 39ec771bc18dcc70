"""What the benchmark looks at and no caller needs: queue and dict behind a landlord."""

import sys
from typing import Any

from leasehold import Landlord
from leasehold.leases.expiry_queue import ExpiryQueue


def queue_of(landlord: Landlord[Any]) -> ExpiryQueue[Any, Any]:
    """The expiry queue of a landlord's table."""
    return landlord.table._queue  # noqa: SLF001  see above


def is_rebuilding(queue: ExpiryQueue[Any, Any]) -> bool:
    """Whether an incremental rebuild is under way."""
    return bool(queue._old)  # noqa: SLF001  see above


def table_bytes(landlord: Landlord[Any]) -> int:
    """The size of the dict of all leases, without what is in it: it changes when the dict grows."""
    return sys.getsizeof(landlord.table._leases)  # noqa: SLF001  see above
