"""How long a call may take, as gRPC writes it: at most eight digits and a unit."""

import re
from bisect import bisect_left
from functools import cache
from typing import Final

MAX_DIGITS: Final = 8
MAX_SHOWN_BYTES: Final = 2 * MAX_DIGITS
MAX_TIMEOUT_S: Final = 99_999_999 * 3600.0

_JUST_BELOW: Final = 1 - 1e-9
_JUST_ABOVE: Final = 1 + 1e-9
_UNITS_S: Final = {
    b"n": 1e-9,
    b"u": 1e-6,
    b"m": 1e-3,
    b"S": 1.0,
    b"M": 60.0,
    b"H": 3600.0,
}
_FORM: Final = re.compile(rb"([0-9]{1,8})([numSMH])")


_DIGITS: Final = b"0123456789"


def is_timeout(text: bytes) -> bool:
    """Whether a `grpc-timeout` is well-formed: a fraction of the cost of `parse_timeout`."""
    return text.lstrip(_DIGITS) in _UNITS_S and 1 < len(text) <= MAX_DIGITS + 1


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
    bounds, texts = _texts()
    return texts[min(bisect_left(bounds, timeout_s * _JUST_BELOW), len(texts) - 1)]


@cache
def _texts() -> tuple[list[float], list[bytes]]:
    """All timeouts of two digits, in the finest unit that has room for them."""
    bounds, texts = [0.0], [b"1n"]
    for unit, unit_s in _UNITS_S.items():
        for zeros in range(MAX_DIGITS - 1):
            for digits in range(10 if zeros else 1, 100):
                count = digits * 10**zeros
                if count * unit_s > bounds[-1] * _JUST_ABOVE:
                    bounds.append(count * unit_s)
                    texts.append(b"%d%b" % (count, unit))
    return [*bounds, MAX_TIMEOUT_S], [*texts, b"%dH" % (10**MAX_DIGITS - 1)]
