"""The server, whose recoveries of files wait once they have begun. Run by a fault test.

python waiting_recoverer.py serve ...

Such a server is certain to have recoveries under way when it is killed, however fast the machine.
"""

import asyncio
import sys
from typing import Any
from unittest import mock

from leasehold.cli import main
from leasehold.files.recovery import Recoverer


async def _wait(_recoverer: Recoverer, _begun: Any) -> bool:
    """Wait until the process ends."""
    return bool(await asyncio.get_running_loop().create_future())


if __name__ == "__main__":
    mock.patch.object(Recoverer, "_run", _wait).start()
    sys.exit(main(sys.argv[1:]))
