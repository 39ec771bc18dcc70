"""All sources together: flags over variables over the file over what holds if nothing is said.

A mistake is told wherever it is, also in a value that another one overrides; all are told together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leasehold.cli.settings.given import Given, Layer, Mistake
from leasehold.cli.settings.options import BY_NAME, OPTIONS, settings_of
from leasehold.cli.settings.toml_file import read_file
from leasehold.cli.settings.variables import CONFIG_VARIABLE, read_variables
from leasehold.engine.opening import MEMORY
from leasehold.rpc.addresses import Address
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
    mistakes: list[Mistake]
    warnings: list[str]

    @property
    def settings(self) -> Settings:
        """What a server takes, if there are no mistakes."""
        return settings_of({name: given.value for name, given in self.values.items()})


def read_settings(flags: Flags, environ: Mapping[str, str]) -> Reading:
    """Read everything; the file is looked for from the working directory."""
    layers = [_read_flags(flags), read_variables(environ), _read_file(flags, environ)]
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


def _likely_slips(values: Mapping[str, Given]) -> list[str]:
    """What is right, and hardly what was meant."""
    directory, where = values["data-dir"]
    if directory == Path(MEMORY.removesuffix(":")) and not directory.exists():
        return [
            (
                f"{where}: {directory} is the name of a directory: did you "
                f"mean {MEMORY}, with a colon?"
            )
        ]
    return []


# What is right by itself, and not together.


def _contradictions(values: Mapping[str, Given]) -> list[Mistake]:
    return [*_half_tls(values), *_wrong_schemes(values), *_open_to_all(values)]


def _half_tls(values: Mapping[str, Given]) -> list[Mistake]:
    needed = {"client-ca": ("cert", "key"), "cert": ("key",), "key": ("cert",)}
    for name, others in needed.items():
        missing = [BY_NAME[each].flag for each in others if values[each].value is None]
        if values[name].value is not None and missing:
            wanted = " and ".join(f"{flag} FILE" for flag in missing)
            why = f"{name} needs {wanted} as well"
            return [Mistake(f"{values[name].where}: {why}", name)]
    return []


def _wrong_schemes(values: Mapping[str, Given]) -> list[Mistake]:
    has_tls = values["cert"].value is not None
    why = (
        "is without TLS, but a certificate was given: write https://, or leave out cert and key"
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


def _about_addresses(
    values: Mapping[str, Given], why: str, is_wrong: Callable[[Address], bool]
) -> list[Mistake]:
    listen = values["listen"]
    return [
        Mistake(f"{listen.where}: {each} {why}", "listen")
        for each in listen.value
        if is_wrong(each)
    ]
