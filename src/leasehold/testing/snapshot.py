"""Copies of messages on the network, so that hosts share no objects.

A snapshot is taken when a message leaves (the sender may change the object afterwards) and a copy
of it is made at each arrival (two receivers of a duplicate share nothing either). It is a pickle,
with two exceptions. Classes and functions go by reference, so that tests may use local ones. And
exceptions are rebuilt without calling their class: pickle would pass the formatted message as the
argument, and the class would format it again.
"""

import io
import pickle
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_BY_REFERENCE = (type, FunctionType, BuiltinFunctionType, ModuleType)


class Snapshot:
    """The state of `value` at creation."""

    __slots__ = ("_bytes", "_references")

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        self._references: list[Any] = []
        _Pickler(file, self._references).dump(value)
        self._bytes = file.getvalue()

    def copy(self) -> Any:
        """Return a copy of that state."""
        return _Unpickler(io.BytesIO(self._bytes), self._references).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, references: list[Any]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._references = references

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, _BY_REFERENCE):
            return None
        self._references.append(obj)
        return len(self._references) - 1

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException):
            return _rebuild, (type(obj), obj.args, obj.__dict__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, references: list[Any]) -> None:
        super().__init__(file)
        self._references = references

    def persistent_load(self, pid: Any) -> Any:
        return self._references[pid]


def _rebuild(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    """Make an exception as its builtin base would, then set its attributes."""
    base = next(parent for parent in kind.__mro__ if parent.__module__ == "builtins")
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)  # type: ignore[misc]  # OSError keeps its errno there
    error.args = args
    error.__dict__.update(state)
    return error
