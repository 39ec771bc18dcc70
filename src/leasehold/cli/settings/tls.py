"""The files of TLS that settings name: read, and what is wrong with them told like any mistake."""

import ssl
from typing import Final

from leasehold.cli.settings.given import Mistake
from leasehold.cli.settings.reading import Reading
from leasehold.rpc.tls import server_tls

_NAMES: Final = ("client-ca", "key", "cert")


def read_tls(reading: Reading) -> ssl.SSLContext | None:
    """Make a context; None if there is to be none, or if something is wrong, which is noted."""
    if reading.mistakes or (files := reading.settings.tls) is None:
        return None
    try:
        return server_tls(files.cert, files.key, files.client_ca)
    except OSError as error:
        text, wrong = f"{error.filename}: {error.strerror or error}", str(error.filename)
    except ValueError as error:
        text = wrong = str(error)
    name = _named(reading, wrong)
    reading.mistakes.append(Mistake(f"{reading.values[name].where}: {text}", name))
    return None


def _named(reading: Reading, wrong: str) -> str:
    """Find the option that has named the file that a text is about: the first one in it."""
    named = {
        name: position
        for name in _NAMES
        if reading.values[name].value is not None
        and (position := wrong.find(str(reading.values[name].value))) >= 0
    }
    return min(named, key=lambda name: named[name], default="cert")
