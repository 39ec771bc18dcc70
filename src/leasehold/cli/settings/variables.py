"""Settings from the environment.

An empty variable counts as not set. Unknown ones are warned of, not refused: not everybody who
sets them wants to be heard. Kubernetes sets some for each service that is called leasehold.
"""

import re
from collections.abc import Mapping
from typing import Final

from leasehold.cli.settings.given import Layer
from leasehold.cli.settings.nearest import nearest
from leasehold.cli.settings.options import OPTIONS, PREFIX
from leasehold.cli.settings.shown import shown_name

CONFIG_VARIABLE: Final = PREFIX + "CONFIG"

_OF_OTHERS: Final = re.compile(
    PREFIX + r"(?:ENDPOINTS|SEEDS?|(?:\w+_)?SERVICE_HOST|(?:\w+_)?SERVICE_PORT(?:_\w+)?|"
    r"(?:\w+_)?PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)"
)
"""Of clients, of `leasehold.testing`, and of Kubernetes."""


def read_variables(environ: Mapping[str, str]) -> Layer:
    """Read all variables that are ours."""
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
