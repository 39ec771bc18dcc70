"""A lock library in a process of its own, which executes orders.

Its argument selects it. A line of standard input is an order, and is answered by a line of
standard output, both in JSON.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any

from benchmarks.locks.contenders import CONTENDERS, Contender
from benchmarks.locks.driving import Order
from benchmarks.transport.samples import Figures


def main() -> None:
    """Execute orders until the input ends."""
    contender = CONTENDERS[sys.argv[1]]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # output of a library must not be read as an answer
        for line in sys.stdin:
            answers.write(json.dumps(_obey(contender, json.loads(line))) + "\n")
            answers.flush()


def _obey(contender: Contender, order: dict[str, Any]) -> dict[str, Any]:
    try:
        module = importlib.import_module(f"benchmarks.locks.{contender.module}")
        figures: Figures = module.measure(Order(**order), contender.protocol, **contender.options)
    except Exception:  # noqa: BLE001  every failure is reported
        return {"failure": traceback.format_exc()}
    return {"figures": figures}


if __name__ == "__main__":
    main()
