"""The files of TLS that settings name: read, and what is wrong with them told like any mistake."""

import re
import ssl
import time
from typing import Final

from leasehold.cli.certificate import out_of_date
from leasehold.cli.settings.given import Mistake
from leasehold.cli.settings.reading import Reading
from leasehold.rpc.tls import server_tls

_WHAT: Final = re.compile(r"\bthe (key|certificate|certificates|authorities' certificates)\b")
_NAMES: Final = {"key": "key", "certificate": "cert"}


def read_tls(reading: Reading) -> ssl.SSLContext | None:
    """Make a context; None if there is to be none, or if something is wrong, which is noted."""
    if reading.mistakes or (files := reading.settings.tls) is None:
        return None
    try:
        context = server_tls(files.cert, files.key, files.client_ca)
    except OSError as error:
        text = f"{error.filename}: {error.strerror or error}"
    except ValueError as error:
        text = str(error)
    else:
        warning = out_of_date(files.cert, context, time.time())
        if warning is not None:
            reading.warnings.append(f"{reading.values['cert'].where}: {warning}")
        return context
    name = _named(text)
    reading.mistakes.append(Mistake(f"{reading.values[name].where}: {text}", name))
    return None


def _named(text: str) -> str:
    """Find the option that a text is about. Not by the file: two of them may name the same one."""
    found = _WHAT.search(text)
    return "cert" if found is None else _NAMES.get(found[1], "client-ca")
