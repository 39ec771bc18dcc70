"""Types of command-line arguments: ids, durations, keys, addresses.

An invalid argument raises an `ArgumentTypeError` that quotes it and ends with the right form.
"""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leasehold.basics.addresses import Address, parse_address
from leasehold.basics.durations import FOREVER, Requested
from leasehold.basics.lease_ids import shown_lease
from leasehold.cli.settings.error_texts import shown
from leasehold.cli.settings.value_types import (
    FOREVER_WORD,
    MAX_ADDRESS_CHARS,
    parse_term_ms,
    show_term_ms,
)

if TYPE_CHECKING:
    from leasehold.discovery.locators import Locator

MAX_ID: Final = (1 << 63) - 1
ID_DIGITS: Final = 16
"""Digits of a printed id. A longer number is decimal."""

_HEX: Final = re.compile(r"(-?)(?:0[xX])?([0-9A-Fa-f]{1,16})")
_DECIMAL: Final = re.compile(r"dec:(-?[0-9]{1,19})|(-?[0-9]{17,19})")
_DIGITS: Final = re.compile(r"-?[0-9]{1,16}")
_RECORD_ID: Final = re.compile(r"[0-9A-Fa-f]{32}")
_ID_FORM: Final = (
    "write it as it is printed, such as 694d81f5a2c0ca0d, with or without 0x; or in decimal after "
    "dec:, such as dec:31249"
)
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,3})?")
_TERM_FORM: Final = "write seconds, such as 30 or 2.5, or 500ms, 1m30s, 12h, 7d"

MAX_TERM_S: Final = 9_000_000_000
"""The longest TTL of etcd, and the limit of all durations on the command line."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_EXAMPLE_ADDRESS: Final = "127.0.0.1:2379"


# Leases.


def shown_id(lease: int) -> str:
    """Format a lease id as `etcdctl` does."""
    return shown_lease(lease)


def lease_id(text: str) -> int:
    """Parse a lease id: hexadecimal, as it is printed, or decimal after "dec:".

    Programs print ids in decimal. With more than 16 digits these need no "dec:".
    """
    if (found := _HEX.fullmatch(text)) is not None:
        number = int(found[1] + found[2], 16)
    elif (found := _DECIMAL.fullmatch(text)) is not None:
        number = int(found[1] or found[2])
    else:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a lease id: {_ID_FORM}")
    if not number or not -MAX_ID - 1 <= number <= MAX_ID:
        raise argparse.ArgumentTypeError(
            f"lease id must be a signed 64-bit integer other than 0, got {shown(text)}: {_ID_FORM}"
        )
    return number


def other_reading(lease: int) -> str:
    """Return a hint for an unknown id that may have been meant as decimal; else an empty text."""
    text = f"{lease:x}"
    return f"; if {text} is decimal, write dec:{text}" if _DIGITS.fullmatch(text) else ""


def record_id(what: str) -> Callable[[str], str]:
    """Return a parser of ids of objects of a service, such as renewal sets."""

    def parse(text: str) -> str:
        if not _RECORD_ID.fullmatch(text):
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not the id of a {what}: write its 32 hexadecimal digits as they "
                "are printed"
            )
        return text.lower()

    return parse


# Times and numbers.


def term_s(text: str) -> float:
    """Parse a duration, in seconds if it has no unit."""
    try:
        length_ms = parse_term_ms(f"{text}s" if _SECONDS.fullmatch(text) else text, _TERM_FORM)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a duration: {_TERM_FORM}") from None
    if not 0 < length_ms <= MAX_TERM_S * 1000:
        raise argparse.ArgumentTypeError(
            f"duration must be more than 0 and at most {MAX_TERM_S} seconds, got {shown(text)}: "
            f"{_TERM_FORM}"
        )
    return length_ms / 1000


def term_or_0_s(text: str) -> float:
    """Parse a duration that may be 0, or "0s" as `shown_term` formats it."""
    return 0.0 if text in ("0", "0s") else term_s(text)


def term_or_forever(text: str) -> Requested:
    """Parse a duration that may be endless."""
    if text == FOREVER_WORD:
        return FOREVER
    try:
        return term_s(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {FOREVER_WORD}") from None


def shown_term(seconds: float) -> str:
    """Format a duration exactly, such as 1m30s; infinity as "forever"."""
    return FOREVER_WORD if seconds == float("inf") else show_term_ms(round(seconds * 1000))


def shown_remaining(seconds: float) -> str:
    """Format a remaining time: whole seconds, with tenths for the last seconds."""
    return f"{seconds:.1f}s" if seconds < 10 else show_term_ms(int(seconds) * 1000)


def count(text: str) -> int:
    """Parse a count of at least 1."""
    return _at_least(text, 1, "1")


def count_or_0(text: str) -> int:
    """Parse a count that may be 0."""
    return _at_least(text, 0, "2")


def revision(text: str) -> int:
    """Parse a revision."""
    return _at_least(text, 1, "12")


def _at_least(text: str, least: int, example: str) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else -1
    if number < least:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least {least}, such as {example}; got {shown(text)}"
        )
    return number


# Names, keys, files, addresses.


def name(what: str, example: str) -> Callable[[str], str]:
    """Return a parser of names, which must not be empty and must be valid UTF-8."""

    def parse(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError(
                f"{what} must not be empty: write one, such as {example}"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise argparse.ArgumentTypeError(
                f"{what} must be valid UTF-8, got {shown(text)}"
            ) from None
        return text

    return parse


def key_bytes(text: str) -> bytes:
    """Return a key or a value as the exact bytes that the shell passed."""
    return os.fsencode(text)


def path(what: str, example: str) -> Callable[[str], Path]:
    """Return a parser of file or directory names, which must not be empty."""

    def parse(text: str) -> Path:
        if not text:
            raise argparse.ArgumentTypeError(
                f"{what} name must not be empty: write one, such as {example}"
            )
        return Path(text)

    return parse


def endpoints(text: str) -> list[Address]:
    """Parse one address, or several separated by commas."""
    try:
        return addresses(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def addresses(text: str) -> list[Address]:
    """Parse addresses separated by commas. Raises `ValueError` with the right form."""
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


def locator(text: str) -> "Locator":
    """Parse the address of a registrar."""
    from leasehold.discovery.locators import Locator

    try:
        return Locator.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
