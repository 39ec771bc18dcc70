"""Which seeds a test runs with.

LEASEHOLD_SEED=7      just that one: replay a failure
LEASEHOLD_SEEDS=500   seeds 0 to 499: search for one
"""

import os


def seeds(count: int) -> list[int]:
    """Return `count` fixed seeds for `pytest.mark.parametrize`, unless the environment says."""
    if (one := os.environ.get("LEASEHOLD_SEED")) is not None:
        return [_parse("LEASEHOLD_SEED", one)]
    if (many := os.environ.get("LEASEHOLD_SEEDS")) is not None:
        count = _parse("LEASEHOLD_SEEDS", many)
    if count < 1:
        raise ValueError(f"a test needs at least one seed, not {count}")
    return list(range(count))


def _parse(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
