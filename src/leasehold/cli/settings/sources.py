"""All sources merged: flags override variables, which override the file, then the defaults.

Every mistake is reported, also in an overridden value; all are reported together.

Each option of the table is a flag of `serve`. Other commands use the data directory that `serve`
would use. So a backup is of the served data, also if a variable or a file names the directory.
Other errors in the settings are ignored there: a backup may be needed just then.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leasehold.basics.addresses import Address, is_local
from leasehold.basics.durations import FOREVER, Duration
from leasehold.cli.argument_types import path
from leasehold.cli.settings.error_texts import nearest, shown_name
from leasehold.cli.settings.given_values import Given, Layer, Mistake
from leasehold.cli.settings.options import BY_NAME, CREDENTIALS, OPTIONS, PREFIX, Option
from leasehold.cli.settings.toml_file import read_file
from leasehold.cli.settings.value_types import SWITCH
from leasehold.engine.embedded import MEMORY
from leasehold.errors import StorageError
from leasehold.server.settings import RemoteEndpoints, ServiceSettings, Settings, TlsFiles
from leasehold.store.housekeeping import AutoCompaction

CONFIG_FLAG: Final = "--config"
CONFIG_FILE: Final = "leasehold.toml"
"""Read if it is in the working directory and no other file is named."""

CONFIG_VARIABLE: Final = PREFIX + "CONFIG"

DEFAULT: Final = "default"

_OF_OTHERS: Final = re.compile(
    PREFIX + r"(?:ENDPOINTS|SEEDS?|(?:\w+_)?SERVICE_HOST|(?:\w+_)?SERVICE_PORT(?:_\w+)?|"
    r"(?:\w+_)?PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)"
)
"""Of clients, of `leasehold.testing`, and of Kubernetes."""

Flags = Mapping[str, str | list[str] | None]
"""The text of each flag by option name, and of the file as `config`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result: a value for each option with its source, and the mistakes."""

    values: dict[str, Given]
    mistakes: list[Mistake]
    warnings: list[str]

    @property
    def settings(self) -> Settings:
        """The server's settings, if there are no mistakes."""
        return _settings_of({name: given.value for name, given in self.values.items()})


def _settings_of(values: dict[str, Any]) -> Settings:
    """Build the server's settings from values by option name."""
    cert, key = values["cert"], values["key"]
    return Settings(
        directory=values["data-dir"],
        engine=_engine_of(values),
        advertise=values["advertise"] or None,
        services=_services_of(values),
        listen=values["listen"],
        tls=None if cert is None or key is None else TlsFiles(cert, key, values["client-ca"]),
        is_insecure=values["insecure"],
        cors=values["cors"],
        host_whitelist=values["host-whitelist"],
        has_gateway=values["gateway"],
        quota_bytes=values["quota"],
        compaction=AutoCompaction(values["compaction-age"], values["compaction-revisions"]),
        min_ttl_s=int(values["min-ttl"]),
        keys_per_lease=values["keys-per-lease"],
        policies=dict(values["policy"]),
        unhealthy_after_s=values["unhealthy-after"],
        max_streams=values["max-streams"],
        log_level=values["log-level"],
        log_format=values["log-format"],
    )


def _engine_of(values: dict[str, Any]) -> RemoteEndpoints | None:
    if not values["engine"]:
        return None
    files = (values[name] for name in ("engine-ca", "engine-cert", "engine-key"))
    return RemoteEndpoints(values["engine"], *files)


def _services_of(values: dict[str, Any]) -> ServiceSettings:
    return ServiceSettings(
        renew_at=values["renew-at"],
        callbacks=values["callbacks"],
        isolate_sets=values["isolate-sets"],
        credentials=dict(values["credentials"]),
        max_sets=values["max-sets"],
        max_set_members=values["max-set-members"],
        set_maximum=_duration(values["set-term-max"]),
        set_default=_duration(values["set-term-default"]),
        registry_maximum=_duration(values["registry-term-max"]),
        registry_default=_duration(values["registry-term-default"]),
        max_discoveries=values["max-discoveries"],
        discovery_maximum=_duration(values["discovery-term-max"]),
        discovery_default=_duration(values["discovery-term-default"]),
        discover_at=values["discover-at"],
        file_stores=values["file-stores"],
        files_interval_s=values["files-interval"],
        dns=values["dns"] or None,
        dns_domain=values["dns-domain"],
        groups=values["groups"],
        announcement_ttl_s=int(values["announcement-ttl"]),
        mailbox_events=values["mailbox-events"],
        mailbox_bytes=values["mailbox-bytes"],
        handback_bytes=values["max-handback"],
        reference_bytes=values["max-lease-reference"],
    )


def _duration(seconds: float | None) -> Duration:
    return FOREVER if seconds is None else seconds


def read_settings(flags: Flags, environ: Mapping[str, str]) -> Reading:
    """Read all sources. The path of the file is relative to the working directory."""
    layers = [_read_flags(flags), _read_variables(environ), _read_file(flags, environ)]
    values = {
        option.name: next(
            (layer.given[option.name] for layer in layers if option.name in layer.given),
            Given(option.default, DEFAULT),
        )
        for option in (*OPTIONS, CREDENTIALS)
    }
    mistakes = [mistake for layer in layers for mistake in layer.mistakes]
    mistakes += _contradictions(values) if not mistakes else []
    warnings = [warning for layer in layers for warning in layer.warnings]
    warnings += _likely_slips(values)
    return Reading(values, mistakes, warnings)


def _read_file(flags: Flags, environ: Mapping[str, str]) -> Layer:
    named = {CONFIG_FLAG: flags.get("config"), CONFIG_VARIABLE: environ.get(CONFIG_VARIABLE)}
    for where, name in named.items():
        if name is not None and (name or where == CONFIG_FLAG):
            return read_file(Path(str(name)), where)
    return read_file(Path(CONFIG_FILE), "default") if Path(CONFIG_FILE).exists() else Layer()


def _read_flags(flags: Flags) -> Layer:
    layer = Layer()
    for option in OPTIONS:
        given = flags.get(option.name)
        if given is not None:
            texts = given if isinstance(given, list) else [given]
            layer.take_texts(option, option.flag, texts)
    return layer


def _read_variables(environ: Mapping[str, str]) -> Layer:
    """Read all variables with our prefix; an empty one counts as not set.

    Unknown variables cause a warning, not an error: they may not be meant for us. Kubernetes sets
    some for each service that is called leasehold.
    """
    layer = Layer()
    for option in OPTIONS:
        text = environ.get(option.variable, "").strip()
        if text:
            texts = text.split() if option.kind.is_list else [text]
            layer.take_texts(option, option.variable, texts)
    known = {option.variable for option in OPTIONS} | {CONFIG_VARIABLE}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not _OF_OTHERS.fullmatch(name):
            near = nearest(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known])
            meant = "" if near is None else f": did you mean {PREFIX}{near}?"
            layer.warnings.append(
                f"{shown_name(name)} is set, but is not a setting of the server{meant}"
            )
    return layer


def _likely_slips(values: Mapping[str, Given]) -> list[str]:
    """Return warnings for values that are valid but probably not intended."""
    directory, where = values["data-dir"]
    if directory == Path(MEMORY.removesuffix(":")) and not directory.exists():
        return [(f"{where}: {directory} names a directory: did you mean {MEMORY}, with a colon?")]
    return []


# Values that are valid alone but not in combination.


def _contradictions(values: Mapping[str, Given]) -> list[Mistake]:
    return [
        *_half_tls(values),
        *_wrong_schemes(values),
        *_open_to_all(values),
        *_not_for_engine(values),
        *_only_for_engine(values),
        *_terms(values),
    ]


def _half_tls(values: Mapping[str, Given]) -> list[Mistake]:
    needed = {"client-ca": ("cert", "key"), "cert": ("key",), "key": ("cert",)}
    for name, others in needed.items():
        missing = [BY_NAME[each].flag for each in others if values[each].value is None]
        if values[name].value is not None and missing:
            wanted = " and ".join(f"{flag} FILE" for flag in missing)
            why = f"{name} requires {wanted} as well"
            return [Mistake(f"{values[name].where}: {why}", name)]
    return []


def _wrong_schemes(values: Mapping[str, Given]) -> list[Mistake]:
    has_tls = values["cert"].value is not None
    why = (
        "is without TLS, but a certificate was given: write https://, or omit cert and key"
        if has_tls
        else "needs TLS, but no certificate was given: add --cert FILE and --key FILE"
    )
    return _about_addresses(values, why, lambda each: each.is_tls not in (None, has_tls))


def _open_to_all(values: Mapping[str, Given]) -> list[Mistake]:
    if values["cert"].value is not None or values["insecure"].value:
        return []
    why = (
        "can be reached from other machines without TLS: add --cert FILE and --key FILE, listen on "
        "127.0.0.1, or add --insecure"
    )
    return _about_addresses(values, why, lambda each: not each.is_tls and not is_local(each))


def _not_for_engine(values: Mapping[str, Given]) -> list[Mistake]:
    """Refuse settings of a server's own data together with a cluster that has the data."""
    engine = values["engine"]
    if not engine.value:
        return []
    return [
        Mistake(
            f"{values[name].where}: {name} cannot be combined with engine ({engine.where}): the "
            f"etcd cluster has the data; omit {name} or engine",
            name,
        )
        for name in OF_OWN_DATA
        if values[name].where != DEFAULT
    ]


def _only_for_engine(values: Mapping[str, Given]) -> list[Mistake]:
    needed = {"engine-key": "engine-cert", "engine-cert": "engine-key"}
    for name in ("engine-ca", "engine-cert", "engine-key", "advertise"):
        missing = [] if values["engine"].value else ["engine URL"]
        if (other := needed.get(name)) is not None:
            missing += [f"{each} FILE" for each in (other, "engine-ca") if not values[each].value]
        if values[name].value and missing:
            wanted = " and ".join(f"--{each}" for each in missing)
            return [Mistake(f"{values[name].where}: {name} requires {wanted} as well", name)]
    return []


def _terms(values: Mapping[str, Given]) -> list[Mistake]:
    names = ("set-term", "registry-term", "discovery-term")
    return [mistake for name in names for mistake in _term_of(name, values)]


def _term_of(name: str, values: Mapping[str, Given]) -> list[Mistake]:
    most, usual = values[f"{name}-max"], values[f"{name}-default"]
    if most.value is None or (usual.value is not None and usual.value <= most.value):
        return []
    show = BY_NAME[f"{name}-max"].kind.show
    where = most.where if usual.where == DEFAULT else usual.where
    why = (
        f"{name}-default is {show(usual.value)} and {name}-max is {show(most.value)}: write a "
        "default that is at most the maximum"
    )
    return [Mistake(f"{where}: {why}", f"{name}-default")]


def _about_addresses(
    values: Mapping[str, Given], why: str, is_wrong: Callable[[Address], bool]
) -> list[Mistake]:
    listen = values["listen"]
    return [
        Mistake(f"{listen.where}: {each} {why}", "listen")
        for each in listen.value
        if is_wrong(each)
    ]


OF_OWN_DATA: Final = (
    "data-dir",
    "quota",
    "compaction-age",
    "compaction-revisions",
    "min-ttl",
    "keys-per-lease",
)
"""Options of a server that has the data itself."""

_PREFIX: Final = "setting-"
"""Separates the values of options from other arguments of a command."""

_DATA_DIR: Final = BY_NAME["data-dir"]
IN_FORCE: Final = "(default: that of `leasehold serve`, ./leasehold.data unless set)"
directory = path("directory", "./leasehold.data")


# All options, for `serve` and `config`.


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all options, and the one that names a file."""
    names = dict.fromkeys(option.group for option in OPTIONS)
    groups = {name: parser.add_argument_group(name) for name in names}
    for option in OPTIONS:
        _add_flag(groups[option.group], option)
    add_config_flag(parser.add_argument_group("settings"), "TOML file with any of these settings")


def add_config_flag(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the option that names a file."""
    parser.add_argument(
        CONFIG_FLAG,
        metavar="FILE",
        dest=_PREFIX + "config",
        help=f"{what} (default: ${CONFIG_VARIABLE}, or ./{CONFIG_FILE} if it exists)",
    )


def _add_flag(group: argparse._ArgumentGroup, option: Option) -> None:
    dest, kind = _PREFIX + option.name, option.kind
    if kind is SWITCH:
        group.add_argument(
            option.flag, dest=dest, action=argparse.BooleanOptionalAction, help=option.help
        )
        return
    group.add_argument(
        option.flag,
        dest=dest,
        action="append" if kind.is_list else "store",
        metavar=kind.metavar,
        help=option.help + (f" (default: {option.shown_default})" if option.has_default else ""),
    )


def flags_of(arguments: argparse.Namespace) -> Flags:
    """Return the given values by option name."""
    return {
        dest.removeprefix(_PREFIX): str(value).lower() if isinstance(value, bool) else value
        for dest, value in vars(arguments).items()
        if dest.startswith(_PREFIX)
    }


# The data directory, for `backup`, `restore` and `check`.


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options for the source of the server's settings."""
    add_config_flag(parser, "TOML file of the server, which may set the data directory")


def directory_in_force(named: Path | None, arguments: argparse.Namespace) -> Path:
    """Return the named directory, else that of the settings. Raises `StorageError` if neither."""
    if named is not None:
        return named
    reading = read_settings(flags_of(arguments), os.environ)
    given = reading.values[_DATA_DIR.name]
    for mistake in reading.mistakes:
        if mistake.name in (None, _DATA_DIR.name) and given.where == DEFAULT:
            raise StorageError(f"{mistake.text}; or give the directory on the command line")
    engine = reading.values["engine"]
    if engine.value and given.where == DEFAULT:
        raise StorageError(
            f"{engine.where}: the data is in the etcd cluster at {', '.join(engine.value)}: back "
            "it up with `etcdctl snapshot save`, or name a directory on the command line"
        )
    if given.value is None:
        raise StorageError(
            f"{given.where}: the data directory is memory:, which stores "
            "nothing: name a directory on the "
            "command line"
        )
    assert isinstance(given.value, Path)
    return given.value
