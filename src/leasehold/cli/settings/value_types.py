"""Kinds of values: how each is parsed from a text, and formatted to be parsed again.

An invalid value raises a `ValueError` that quotes it and ends with the right form.

A lease policy is one value in a flag, `--policy workers:min=1s,max=10m,default=30s`. In a file
each is a table:

    [policy.workers]
    min = "1s"
    max = "10m"
    default = "30s"
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from leasehold.basics.addresses import Address, TcpAddress, parse_address
from leasehold.basics.endpoint_list import EndpointList
from leasehold.cli.settings.error_texts import shown
from leasehold.http1.authority import ANY, parse_origin
from leasehold.leases.policies import DEFAULT_TERM_MS, MAX_TERM_MS, MIN_TERM_MS, TermPolicy
from leasehold.registry.state import check_groups

OFF: Final = "off"

MAX_ADDRESS_CHARS: Final = 300
"""A host name has up to 253, and the path of a Unix socket fewer."""

_ANY_ADDRESS: Final = "127.0.0.1:2379"
_ANY_HOST: Final = "leasehold.example.org"
_ANY_ORIGIN: Final = "https://app.example.org"

_ANY_DNS_ADDRESS: Final = "127.0.0.1:8600"

_ANY_FILE_STORES: Final = "/srv/a,/srv/b,/srv/c"
_ANY_ENDPOINT: Final = "db.example.org:2379"
_ETCD: Final = "etcd://"
_ANY_ENGINE: Final = "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"
_ENGINE_FORM: Final = f"write etcd://HOST:PORT,HOST:PORT, such as {_ANY_ENGINE}"

MAX_ENGINE_CHARS: Final = 2048
"""Of the endpoints of a cluster."""

FOREVER_WORD: Final = "forever"

_HOST: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_DOMAIN: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")

MAX_DOMAIN_CHARS: Final = 190
"""Names of services are in front of it, and a name in DNS has at most 253."""

_SIZE: Final = re.compile(r"([0-9]{1,18}) ?([A-Za-z]*)")
_SIZE_UNITS: Final = {
    "": 1, "B": 1,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
    "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
}  # fmt: skip
_KNOWN_SIZES: Final = {unit.lower(): size_bytes for unit, size_bytes in _SIZE_UNITS.items()}

_TERM_PART: Final = r"([0-9]{1,12}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)"
_TERM: Final = re.compile(f"(?:{_TERM_PART})+")
_PART: Final = re.compile(_TERM_PART)
_TERM_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

_COUNT: Final = re.compile(r"[0-9]{1,3}(?:[_,][0-9]{3})+|[0-9]{1,15}")

_SWITCH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value."""

    metavar: str
    """Its placeholder in the help."""
    example: str
    """A valid value, as it is written after a flag."""
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    takes: tuple[type, ...] = (str,)
    """Its possible types in TOML."""
    is_bare: bool = False
    """Whether it is written without quotes in TOML."""
    is_list: bool = False


def _directory(text: str) -> Path | None:
    if not text or "\0" in text:
        raise ValueError(
            f"{shown(text)} is not a directory name: write one, such as ./leasehold.data"
        )
    return None if text == _memory() else Path(text)


def _memory() -> str:
    from leasehold.engine.embedded import MEMORY

    return MEMORY


def _file(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(f"{shown(text)} is not a file name: write one, such as ./server.pem")
    return Path(text)


def _address(text: str) -> Address:
    if len(text) > MAX_ADDRESS_CHARS:
        raise ValueError(
            f"{shown(text)} is not an address: write HOST:PORT, such as {_ANY_ADDRESS}"
        )
    if not text.startswith("unix:"):
        _refuse_comma(text, "addresses", "listen")
    return parse_address(text)


def _endpoint(text: str) -> str:
    """Parse an address that this server may connect to."""
    if len(text) > MAX_ADDRESS_CHARS or "," in text:
        raise ValueError(
            f"{shown(text)} is not an endpoint: write one HOST:PORT at a time, such as "
            f"{_ANY_ENDPOINT}"
        )
    return str(parse_address(text))


def _list_entry(text: str) -> str:
    """Parse an entry of an operator's list of endpoints."""
    if len(text) > MAX_ADDRESS_CHARS or "," in text:
        raise ValueError(
            f"{shown(text)} is not an endpoint: write one HOST or HOST:PORT at a time, such as "
            f"{_ANY_ENDPOINT}, or * for all"
        )
    EndpointList([text])
    return text


def endpoints(texts: Sequence[str], form: str) -> tuple[str, ...]:
    """Parse addresses of one cluster; an error ends with `form`."""
    found = []
    for text in texts:
        try:
            if "://" in text:
                raise ValueError(f"{shown(text)} has a scheme")
            found.append(_endpoint(text))
        except ValueError as error:
            raise ValueError(f"{error}: {form}") from None
    repeated = next((each for each in found if found.count(each) > 1), None)
    if repeated is not None:
        raise ValueError(f"{repeated} is given twice: {form}")
    return tuple(found)


def _engine(text: str) -> tuple[str, ...]:
    if not text.startswith(_ETCD):
        raise ValueError(f"{shown(text)} is not an engine: {_ENGINE_FORM}")
    rest = text.removeprefix(_ETCD)
    if not rest or len(rest) > MAX_ENGINE_CHARS:
        raise ValueError(f"{shown(text)} is not an engine: {_ENGINE_FORM}")
    return endpoints(rest.removesuffix("/").split(","), _ENGINE_FORM)


def _refuse_comma(text: str, what: str, name: str) -> None:
    if "," in text:
        raise ValueError(
            f"{shown(text)} has a comma: write several {what} as --{name} "
            f"A --{name} B, with spaces "
            "between them in a variable, or as a list in the file"
        )


def _origin(text: str) -> str:
    _refuse_comma(text, "origins", "cors")
    if text == ANY:
        return text
    try:
        return str(parse_origin(text))
    except ValueError:
        why = "is not an origin: write SCHEME://HOST or SCHEME://HOST:PORT without a path"
        raise ValueError(f"{shown(text)} {why}, such as {_ANY_ORIGIN}, or *") from None


def _host(text: str) -> str:
    _refuse_comma(text, "hosts", "host-whitelist")
    host = text.lower().removesuffix(".")
    if host != ANY and not _HOST.fullmatch(host):
        why = "is not a host name without a port"
        raise ValueError(f"{shown(text)} {why}: write one such as {_ANY_HOST}, or *")
    return host


def _dns_address(text: str) -> TcpAddress:
    """Parse an address for DNS: a name might stand for several, and UDP listens on one."""
    address = parse_address(text) if len(text) <= MAX_ADDRESS_CHARS else None
    try:
        if isinstance(address, TcpAddress) and address.is_tls is None:
            ip_address(address.host)
            return address
    except ValueError:
        pass  # the host is a name
    raise ValueError(f"{shown(text)} is not IP:PORT, such as {_ANY_DNS_ADDRESS}")


def _domain(text: str) -> str:
    domain = text.lower().removesuffix(".")
    if not _DOMAIN.fullmatch(domain) or len(domain) > MAX_DOMAIN_CHARS:
        why = f"is not a domain of at most {MAX_DOMAIN_CHARS} characters"
        raise ValueError(f"{shown(text)} {why}: write one such as service.example.org")
    return domain


def _groups(text: str) -> tuple[str, ...]:
    try:
        return check_groups(text.split(","))
    except ValueError as error:
        raise ValueError(f"{shown(text)}: {error}; write NAME,NAME, such as payments") from None


def _file_stores(text: str) -> tuple[str, ...]:
    from leasehold.files.replica_store import normal_url, open_store

    form = f"separate stores with commas, such as {_ANY_FILE_STORES}"
    try:
        urls = tuple(map(normal_url, text.split(",")))
        for url in urls:
            open_store("", url)  # it creates and connects nothing
    except ValueError as error:
        raise ValueError(f"{error}; {form}") from None
    if len(set(urls)) < len(urls):
        raise ValueError(
            f"{shown(text)} has a store twice: write each once, such as {_ANY_FILE_STORES}"
        )
    return urls


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError(f"{shown(text)} is not a boolean: write true or false")
    return _SWITCH[text.lower()]


DIRECTORY: Final = Kind(
    "DIR", "./leasehold.data", _directory, lambda path: _memory() if path is None else str(path)
)
FILE: Final = Kind("FILE", "./server.pem", _file)
ADDRESS: Final = Kind("ADDRESS", _ANY_ADDRESS, _address, is_list=True)
ONE_ADDRESS: Final = Kind("ADDRESS", _ANY_ENDPOINT, _address)
ENDPOINT: Final = Kind("ENDPOINT", _ANY_ENDPOINT, _list_entry, is_list=True)
ENGINE: Final = Kind("URL", _ANY_ENGINE, _engine, lambda value: _ETCD + ",".join(value))
GROUPS: Final = Kind("NAMES", "payments,orders", _groups, ",".join)
FILE_STORES: Final = Kind("URLS", _ANY_FILE_STORES, _file_stores, ",".join)
ORIGIN: Final = Kind("ORIGIN", _ANY_ORIGIN, _origin, is_list=True)
HOST: Final = Kind("HOST", _ANY_HOST, _host, is_list=True)
DNS_ADDRESS: Final = Kind("ADDRESS", _ANY_DNS_ADDRESS, _dns_address)
DOMAIN: Final = Kind("DOMAIN", "service.example.org", _domain)
SWITCH: Final = Kind(
    "", "true", _switch, lambda value: str(value).lower(), takes=(bool,), is_bare=True
)


def choice(names: Sequence[str]) -> Kind:
    """One of several words."""
    several = f"{', '.join(names[:-1])} or {names[-1]}"

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError(f"{shown(text)} is not a valid choice: write {several}")
        return text.lower()

    return Kind("|".join(names), names[0], parse)


def size(example: str, least: int, most: int) -> Kind:
    """A size in bytes."""

    def parse(text: str) -> int:
        found = _SIZE.fullmatch(text)
        if found is None or found[2].lower() not in _KNOWN_SIZES:
            raise ValueError(
                f"{shown(text)} is not a size: write a whole number of bytes, or one with KiB, "
                f"MiB, GiB, TiB, kB, MB, GB or TB, such as {example}"
            )
        size_bytes = int(found[1]) * _KNOWN_SIZES[found[2].lower()]
        return _within(text, size_bytes, least, most, show_size, example)

    return Kind("SIZE", example, parse, show_size, takes=(str, int))


def show_size(size_bytes: int) -> str:
    """Format a size exactly, in the largest possible unit."""
    units = sorted(_SIZE_UNITS.items(), key=lambda unit: unit[1], reverse=True)
    return next(
        f"{size_bytes // each}{unit}" if each > 1 else str(size_bytes)
        for unit, each in units
        if (size_bytes and not size_bytes % each) or each == 1
    )


def count(example: str, least: int, most: int, *, may_be_off: bool = False) -> Kind:
    """An integer, or None for `off` if `may_be_off`."""
    form = f"write a whole number, such as {example}" + (f", or {OFF}" if may_be_off else "")

    def parse(text: str) -> int | None:
        if may_be_off and text.lower() == OFF:
            return None
        if not _COUNT.fullmatch(text):
            raise ValueError(f"{shown(text)} is not a number: {form}")
        number = int(re.sub("[_,]", "", text))
        return _within(text, number, least, most, "{:,}".format, example)

    def show(value: int | None) -> str:
        return OFF if value is None else str(value)

    takes = (str, int) if may_be_off else (int,)
    return Kind("N|off" if may_be_off else "N", example, parse, show, takes=takes, is_bare=True)


def term(
    example: str, least_ms: int, most_ms: int, *, none: str | None = None, unit_ms: int = 1
) -> Kind:
    """A duration in seconds, or None for the word `none`, if there is one."""
    units = "a number with ms, s, m, h or d" if unit_ms == 1 else "whole seconds with s, m, h or d"
    form = f"write {units}, such as {example}" + (f", or {none}" if none else "")

    def parse(text: str) -> float | None:
        if none and text.lower() == none:
            return None
        length_ms = parse_term_ms(text, form)
        if length_ms % unit_ms:
            raise ValueError(
                f"{shown(text)} is not a whole number of seconds: write one, such as {example}"
            )
        return _within(text, length_ms, least_ms, most_ms, show_term_ms, example) / 1000

    def show(value: float | None) -> str:
        return str(none) if value is None else show_term_ms(round(value * 1000))

    return Kind(f"TIME|{none}" if none else "TIME", example, parse, show)


def parse_term_ms(text: str, form: str) -> int:
    """Parse a duration, such as 1h30m; an error ends with `form`."""
    if not _TERM.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a duration: {form}")
    parts_ms = [float(number) * _TERM_UNITS_MS[unit] for number, unit in _PART.findall(text)]
    length_ms = sum(parts_ms)
    if length_ms != int(length_ms):
        raise ValueError(f"{shown(text)} is not a whole number of milliseconds: {form}")
    return int(length_ms)


def show_term_ms(length_ms: int) -> str:
    """Format a duration exactly, such as 1h30m."""
    shown = ""
    for unit, each_ms in _TERM_UNITS_MS.items():
        number, length_ms = divmod(length_ms, each_ms)
        shown += f"{number}{unit}" if number else ""
    return shown or "0s"


def _within(
    text: str, value: int, least: int, most: int, show: Callable[[int], str], example: str
) -> int:
    if not least <= value <= most:
        is_less = value < least
        wanted = f"at least {show(least)}" if is_less else f"at most {show(most)}"
        what = "small" if is_less else "large"
        raise ValueError(f"{shown(text)} is too {what}: write {wanted}, such as {example}")
    return value


NamedPolicy = tuple[str, TermPolicy]

FIELDS: Final = ("min", "max", "default")

EXAMPLE: Final = "workers:min=1s,max=10m,default=30s"
_FORM: Final = f"write NAME:min=TIME,max=TIME,default=TIME, such as {EXAMPLE}"
_TIME: Final = "write a number with ms, s, m, h or d, such as 30s"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str, what: str = "a policy name") -> None:
    """Refuse an invalid name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is not {what}: write up to 100 letters, digits, dots, dashes "
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
