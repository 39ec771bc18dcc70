"""A client in a process of its own, which executes orders.

Its argument selects it. A line of standard input is an order, and is answered by a line of
standard output, both in JSON.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any, Final

from benchmarks.client.clients import AETCD, ASYNCIO, BARE, ETCD3, SYNC, UVLOOP
from benchmarks.client.driving import Order
from benchmarks.transport.samples import Figures

_MODULES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    ASYNCIO: ("our_calls", {"on_uvloop": False}),
    UVLOOP: ("our_calls", {"on_uvloop": True}),
    SYNC: ("our_sync_calls", {}),
    AETCD: ("aetcd_calls", {}),
    ETCD3: ("etcd3_calls", {}),
    BARE: ("bare", {}),
}
"""By who: the module that drives it. Only one of them can be imported where the program runs."""


def main() -> None:
    """Execute orders until the input ends."""
    name, options = _MODULES[sys.argv[1]]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # output of a client must not be read as an answer
        for line in sys.stdin:
            answers.write(json.dumps(_obey(name, options, json.loads(line))) + "\n")
            answers.flush()


def _obey(name: str, options: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    try:
        module = importlib.import_module(f"benchmarks.client.{name}")
        figures: Figures = module.measure(Order(**order), **options)
    except Exception:  # noqa: BLE001  every failure is reported
        return {"failure": traceback.format_exc()}
    return {"figures": figures}


if __name__ == "__main__":
    main()
