"""All sources together: flags over variables over the file over what holds if nothing is said.

A mistake is told wherever it is, also in a value that another one overrides; all are told together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from leasehold.cli.settings.given import Given, Layer
from leasehold.cli.settings.options import BY_NAME, OPTIONS, settings_of
from leasehold.cli.settings.toml_file import read_file
from leasehold.cli.settings.variables import CONFIG_VARIABLE, read_variables
from leasehold.server.settings import Settings, is_local

CONFIG_FLAG: Final = "--config"
CONFIG_FILE: Final = "leasehold.toml"
"""Read if it is in the working directory and no other file is named."""

DEFAULT: Final = "default"

Flags = Mapping[str, str | list[str] | None]
"""What came after each flag, by the names of options, and of the file as `config`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found: a value for each option, with where it comes from; and what is wrong."""

    values: dict[str, Given]
    file: Path | None
    mistakes: list[str]
    warnings: list[str]

    @property
    def settings(self) -> Settings:
        """What a server takes, if there are no mistakes."""
        return settings_of({name: given.value for name, given in self.values.items()})


def read_settings(flags: Flags, environ: Mapping[str, str]) -> Reading:
    """Read everything; the file is looked for from the working directory."""
    file = _file_of(flags, environ)
    layers = [
        _read_flags(flags),
        read_variables(environ),
        Layer() if file is None else read_file(file),
    ]
    values = {
        option.name: next(
            (layer.given[option.name] for layer in layers if option.name in layer.given),
            Given(option.default, DEFAULT),
        )
        for option in OPTIONS
    }
    mistakes = [mistake for layer in layers for mistake in layer.mistakes]
    mistakes += _contradictions(values) if not mistakes else []
    warnings = [warning for layer in layers for warning in layer.warnings]
    return Reading(values, file, mistakes, warnings)


def _file_of(flags: Flags, environ: Mapping[str, str]) -> Path | None:
    named = flags.get("config") or environ.get(CONFIG_VARIABLE)
    if isinstance(named, str) and named:
        return Path(named)
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).exists() else None


def _read_flags(flags: Flags) -> Layer:
    layer = Layer()
    for option in OPTIONS:
        given = flags.get(option.name)
        if given is not None:
            texts = given if isinstance(given, list) else [given]
            layer.take_texts(option, option.flag, texts)
    return layer


# What is right by itself, and not together.


def _contradictions(values: Mapping[str, Given]) -> list[str]:
    return [*_half_tls(values), *_wrong_schemes(values), *_open_to_all(values)]


def _half_tls(values: Mapping[str, Given]) -> list[str]:
    needed = {"cert": ("key",), "key": ("cert",), "client-ca": ("cert", "key")}
    return [
        f"{_said(name, values)}: {name} is set, and {missing} is not: give "
        f"{BY_NAME[missing].flag} FILE as well"
        for name, others in needed.items()
        if values[name].value is not None
        for missing in others
        if values[missing].value is None
    ][:1]


def _said(name: str, values: Mapping[str, Given]) -> str:
    where = values[name].where
    return f"{where}: {BY_NAME[name].name}" if ":" in where else where


def _wrong_schemes(values: Mapping[str, Given]) -> list[str]:
    listen, has_tls = values["listen"], values["cert"].value is not None
    wrong = [each for each in listen.value if each.is_tls not in (None, has_tls)]
    why = (
        "asks for no TLS, and there is a certificate: write https://, or leave cert and key out"
        if has_tls
        else "asks for TLS, and there is no certificate: give --cert FILE and --key FILE"
    )
    return [f"{listen.where}: {each} {why}" for each in wrong]


def _open_to_all(values: Mapping[str, Given]) -> list[str]:
    listen: Any = values["listen"]
    if values["cert"].value is not None or values["insecure"].value:
        return []
    return [
        f"{listen.where}: {each} can be reached from other machines, and there is no TLS: give "
        "--cert FILE and --key FILE, or listen on 127.0.0.1, or say --insecure"
        for each in listen.value
        if not is_local(each)
    ]
