"""What is written on a command line, as what it means: ids of leases, terms, keys, addresses.

Whatever is wrong is an `ArgumentTypeError` that names what was written, and ends with the right
form.
"""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leasehold.cli.settings.kinds import MAX_ADDRESS_CHARS, parse_term_ms, show_term_ms
from leasehold.cli.settings.shown import shown
from leasehold.lease_ids import shown_lease
from leasehold.rpc.addresses import Address, parse_address

MAX_ID: Final = (1 << 63) - 1
ID_DIGITS: Final = 16
"""Of an id, as it is printed: what has more is decimal."""

MAX_DECIMAL_DIGITS: Final = 19

_HEX: Final = re.compile(r"(-?)(?:0[xX])?([0-9A-Fa-f]{1,16})")
_DECIMAL: Final = re.compile(r"dec:(-?[0-9]{1,19})|(-?[0-9]{17,19})")
_DIGITS: Final = re.compile(r"-?[0-9]{1,16}")
_ID_FORM: Final = (
    "write it as it is printed, such as 694d81f5a2c0ca0d, with or without 0x; or in decimal after "
    "dec:, such as dec:31249"
)
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,3})?")
_TERM_FORM: Final = "write seconds, such as 30 or 2.5, or 500ms, 1m30s, 12h, 7d"

MAX_TERM_S: Final = 9_000_000_000
"""The longest TTL of etcd, and so of all durations on the command line."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_EXAMPLE_ADDRESS: Final = "127.0.0.1:2379"


# Leases.


def shown_id(lease: int) -> str:
    """Format a lease id as `etcdctl` does."""
    return shown_lease(lease)


def lease_id(text: str) -> int:
    """Parse a lease id: hexadecimal, as it is printed, or decimal after "dec:".

    Programs print it in decimal, then usually with more than 16 digits, which need no "dec:".
    """
    if (found := _HEX.fullmatch(text)) is not None:
        number = int(found[1] + found[2], 16)
    elif (found := _DECIMAL.fullmatch(text)) is not None:
        number = int(found[1] or found[2])
    else:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a lease id: {_ID_FORM}")
    if not number or not -MAX_ID - 1 <= number <= MAX_ID:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a lease id, which fits in a signed 64-bit integer and is not "
            f"0: {_ID_FORM}"
        )
    return number


def other_reading(lease: int) -> str:
    """Say what else may have been meant by an id that is not there; nothing, if that is clear."""
    text = f"{lease:x}"
    return f"; if {text} is decimal, write dec:{text}" if _DIGITS.fullmatch(text) else ""


# Times and numbers.


def term_s(text: str) -> float:
    """Parse a duration, in seconds if it has no unit."""
    try:
        length_ms = parse_term_ms(f"{text}s" if _SECONDS.fullmatch(text) else text, _TERM_FORM)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a duration: {_TERM_FORM}") from None
    if not 0 < length_ms <= MAX_TERM_S * 1000:
        raise argparse.ArgumentTypeError(
            f"a duration must be more than 0 and at most {MAX_TERM_S} seconds, got {shown(text)}: "
            f"{_TERM_FORM}"
        )
    return length_ms / 1000


def term_or_0_s(text: str) -> float:
    """Parse a duration that may be 0 or, as `shown_term` writes it, 0s."""
    return 0.0 if text in ("0", "0s") else term_s(text)


def shown_term(seconds: float) -> str:
    """Write a length of time exactly, such as 1m30s."""
    return show_term_ms(round(seconds * 1000))


def shown_remaining(seconds: float) -> str:
    """Write how long something has to run: whole seconds, and tenths of the last ones."""
    return f"{seconds:.1f}s" if seconds < 10 else show_term_ms(int(seconds) * 1000)


def count(text: str) -> int:
    """Read a number of things, from 1 on."""
    return _at_least(text, 1, "1")


def revision(text: str) -> int:
    """Read a revision."""
    return _at_least(text, 1, "12")


def _at_least(text: str, least: int, example: str) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else -1
    if number < least:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a whole number of at least {least}: write one, such as {example}"
        )
    return number


# Names, keys, files, addresses.


def name(what: str, example: str) -> Callable[[str], str]:
    """Return a parser of names, which must not be empty and must be valid UTF-8."""

    def parse(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError(f"the {what} is empty: write one, such as {example}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise argparse.ArgumentTypeError(
                f"the {what} {shown(text)} is not valid UTF-8"
            ) from None
        return text

    return parse


def octets(text: str) -> bytes:
    """Read a key or a value: the very bytes that the shell has passed on."""
    return os.fsencode(text)


def file(text: str) -> Path:
    """Read the name of a file."""
    if not text:
        raise argparse.ArgumentTypeError("the file name is empty: write one, such as ./ca.pem")
    return Path(text)


def endpoints(text: str) -> list[Address]:
    """Read one address, or several with commas between them."""
    try:
        return addresses(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def addresses(text: str) -> list[Address]:
    """Read addresses with commas between them; `ValueError` says what would be right."""
    found = [_address(each.strip()) for each in text.split(",") if each.strip()]
    if not found:
        raise ValueError(f"no address in {shown(text)}: write one, such as {_EXAMPLE_ADDRESS}")
    return found


def _address(text: str) -> Address:
    if len(text) > MAX_ADDRESS_CHARS:
        raise ValueError(
            f"{shown(text)} is not an address: write HOST:PORT, such as {_EXAMPLE_ADDRESS}"
        )
    if " " in text and not text.startswith("unix:"):
        raise ValueError(
            f"{shown(text)} has a space: separate addresses with commas, such as "
            f"{','.join(text.split())}"
        )
    return parse_address(text)
