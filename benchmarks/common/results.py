"""All that one run measured: cells, each with its samples, and what could not be measured."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True)
class Results(Generic[C, S]):
    """What was measured, by cell. Cells and samples are dataclasses."""

    machine: str
    cells: dict[C, list[S]]
    missing: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The same in plain lists and dicts."""
        return {
            "machine": self.machine,
            "missing": self.missing,
            "cells": [
                {"cell": asdict(cell), "samples": [asdict(each) for each in samples]}
                for cell, samples in self.cells.items()
            ],
        }
