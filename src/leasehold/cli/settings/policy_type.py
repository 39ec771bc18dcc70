"""Lease policies in flags: `--policy workers:min=1s,max=10m,default=30s`.

In a file each is a table:

    [policy.workers]
    min = "1s"
    max = "10m"
    default = "30s"
"""

import re
from collections.abc import Mapping
from typing import Final

from leasehold.cli.settings.error_texts import shown
from leasehold.cli.settings.value_types import Kind, parse_term_ms, show_term_ms
from leasehold.server.term_policies import DEFAULT_TERM_MS, MAX_TERM_MS, MIN_TERM_MS, TermPolicy

NamedPolicy = tuple[str, TermPolicy]

FIELDS: Final = ("min", "max", "default")

EXAMPLE: Final = "workers:min=1s,max=10m,default=30s"
_FORM: Final = f"write NAME:min=TIME,max=TIME,default=TIME, such as {EXAMPLE}"
_TIME: Final = "write a number with ms, s, m, h or d, such as 30s"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> None:
    """Refuse an invalid policy name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is not a policy name: write up to 100 letters, digits, dots, dashes "
            "and underscores, such as workers"
        )


def term_ms(text: str) -> int:
    """Parse one of the durations of a policy."""
    length_ms = parse_term_ms(text, _TIME)
    if not MIN_TERM_MS <= length_ms <= MAX_TERM_MS:
        raise ValueError(
            f"{shown(text)} is not from {show_term_ms(MIN_TERM_MS)} to {MAX_TERM_MS // 1000:,}s: "
            f"{_TIME}"
        )
    return length_ms


def policy_of(terms_ms: Mapping[str, int]) -> TermPolicy:
    """Make a policy. The default TTL, if not given, is 60 s clamped to the policy's range."""
    least, most = terms_ms.get("min", MIN_TERM_MS), terms_ms.get("max", MAX_TERM_MS)
    if least > most:
        raise ValueError(
            f"min is {show_term_ms(least)} and max is {show_term_ms(most)}: write a max that is at "
            "least min"
        )
    usual = terms_ms.get("default", min(max(DEFAULT_TERM_MS, least), most))
    if not least <= usual <= most:
        raise ValueError(
            f"default is {show_term_ms(usual)}: write one from min ({show_term_ms(least)}) to max "
            f"({show_term_ms(most)})"
        )
    return TermPolicy(least, most, usual)


def _parse(text: str) -> NamedPolicy:
    name, colon, rest = text.partition(":")
    if not colon:
        raise ValueError(f"{shown(text)} is not a policy: {_FORM}")
    check_name(name)
    terms_ms: dict[str, int] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not equals or key not in FIELDS or key in terms_ms:
            raise ValueError(f"{shown(part)} in {shown(text)} is not min, max or default: {_FORM}")
        terms_ms[key] = term_ms(value)
    return name, policy_of(terms_ms)


def shown_terms(policy: TermPolicy) -> dict[str, str]:
    """Format the durations of a policy."""
    values = (policy.minimum_ms, policy.maximum_ms, policy.default_ms)
    return dict(zip(FIELDS, map(show_term_ms, values), strict=True))


def _show(named: NamedPolicy) -> str:
    name, policy = named
    return f"{name}:" + ",".join(f"{key}={term}" for key, term in shown_terms(policy).items())


POLICY: Final = Kind("POLICY", EXAMPLE, _parse, _show, takes=(dict,), is_list=True)
