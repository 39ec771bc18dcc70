"""What our server has on disk, when it has stopped."""

from pathlib import Path


def _changes(data: Path) -> list[bytes]:
    from leasehold.journal.journal import Journal  # noqa: PLC0415  must not be loaded with a load

    journal = Journal(data)
    try:
        return [row.changes for row in journal.rows()]
    finally:
        journal.close()


def count_batches(data: Path) -> int:
    """How many batches were committed."""
    return len(_changes(data))


def count_grants(data: Path) -> int:
    """How many leases were granted."""
    from leasehold.wire.journal_pb2 import Changes  # noqa: PLC0415  see above

    return sum(
        change.HasField("granted")
        for encoded in _changes(data)
        for change in Changes.FromString(encoded).changes
    )
