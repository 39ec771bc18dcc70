"""How long a call may take, as gRPC writes it: at most eight digits and a unit."""

import math
import re
from typing import Final

MAX_DIGITS: Final = 8
MAX_SHOWN_BYTES: Final = 2 * MAX_DIGITS
MAX_TIMEOUT_S: Final = 99_999_999 * 3600.0

_UNITS_S: Final = {
    b"n": 1e-9,
    b"u": 1e-6,
    b"m": 1e-3,
    b"S": 1.0,
    b"M": 60.0,
    b"H": 3600.0,
}
_FORM: Final = re.compile(rb"([0-9]{1,8})([numSMH])")


def parse_timeout(text: bytes) -> float:
    """Read a `grpc-timeout` in seconds; ValueError if it is none."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"malformed grpc-timeout: {text[:MAX_SHOWN_BYTES]!r}")
    return int(match[1]) * _UNITS_S[match[2]]


def format_timeout(timeout_s: float) -> bytes:
    """Write a timeout, rounded up to two digits: so that one call's headers repeat another's.

    It only matters to the other side if this one has failed to give up in time.
    """
    timeout_s = min(timeout_s, MAX_TIMEOUT_S)
    for unit, unit_s in _UNITS_S.items():
        count = max(1.0, timeout_s / unit_s)
        step = 10 ** max(0, math.floor(math.log10(count)) - 1)
        rounded = math.ceil(round(count / step, 6)) * step
        if rounded < 10**MAX_DIGITS:
            return b"%d%b" % (rounded, unit)
    return b"%dH" % (10**MAX_DIGITS - 1)
