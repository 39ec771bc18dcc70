"""Leasehold: promises with an end, on any resource.

What there is, is in `leasehold.api`, all of which is imported when the first name is asked for. So
the command `leasehold`, whose modules are below this package, has the first word in its process,
and can end in good order from then on.
"""

import importlib
import typing

__version__ = "0.1.0.dev0"

if typing.TYPE_CHECKING:
    from leasehold.api import *  # noqa: F403  the same names
    from leasehold.api import __all__ as __all__
    from leasehold.api import open as open  # noqa: A004  it reads as it is used
else:

    def __getattr__(name: str) -> typing.Any:
        found = importlib.import_module("leasehold.api")
        names = ("__all__", "open", *found.__all__)  # `import *` keeps the builtin `open`
        if name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals().update({each: getattr(found, each) for each in names})
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), "open", *importlib.import_module("leasehold.api").__all__})
