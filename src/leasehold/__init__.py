"""Leasehold: leases on any resource, an etcd-compatible server, and a client for both.

`leasehold.api` defines the public names. It is imported when the first of them is used: so the
command `leasehold`, whose modules are in this package, installs its signal handlers before anything
else is imported, and a signal at any moment ends it in good order.
"""

import importlib
import typing

from leasehold.basics import version as _version

__version__ = _version.VERSION

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
