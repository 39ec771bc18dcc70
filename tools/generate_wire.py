"""Generate `src/leasehold/wire/*_pb2.py` and their types from the `.proto` files beside them.

Run as `python tools/generate_wire.py` after a change to a `.proto`, and commit what it writes.

protoc's own Python modules register themselves in the pool that all libraries of a process share,
and refuse to run on a protobuf older than the protoc that made them. So only the compiled
descriptors and the types (`.pyi`) are protoc's; the modules are written here. They use nothing but
public API: a private pool, and `GetMessageClass`.
"""

import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]

WIRE: Final = Path(__file__).resolve().parents[1] / "src" / "leasehold" / "wire"
PROTOS: Final = (  # each after those that it imports
    "kv",
    "rpc",
    "cluster",
    "maintenance",
    "authpb",
    "auth",
    "lock",
    "election",
    "journal",
    "leases",
    "services",
    "events",
    "renewal",
    "registry",
    "discovery",
    "admin",
    "files",
    "health",
    "status",
    "reflection_v1",
    "reflection_v1alpha",
)
TOOLS_VERSION: Final = version("grpcio-tools")
MADE_BY: Final = "# Made by tools/generate_wire.py with grpcio-tools "
BYTES_PER_LINE: Final = 24
MODULE_RULES: Final = "# fmt: off\n# ruff: noqa: E501, F401, RUF100\n"
TYPES_RULES: Final = """\
# fmt: off
# ruff: noqa: A002, E501, F401, I001, N803, N815, RUF023, RUF100, UP007, UP045
# mypy: disable-error-code="type-arg"
"""


def generate() -> dict[str, str]:
    """Make all modules and type files: text by file name."""
    with tempfile.TemporaryDirectory() as scratch:
        compiled = _compile(Path(scratch))
        texts = {}
        for file in compiled.file:
            stem = Path(file.name).stem
            texts[f"{stem}_pb2.py"] = _module(file)
            protoc_types = Path(scratch, f"{stem}_pb2.pyi").read_text(encoding="utf-8")
            texts[f"{stem}_pb2.pyi"] = _types(stem, protoc_types)
    return texts


def _compile(scratch: Path) -> FileDescriptorSet:
    descriptors = scratch / "descriptors"
    arguments = [
        "protoc",
        f"-I{WIRE / 'protos'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--descriptor_set_out={descriptors}",
        f"--pyi_out={scratch}",
        *(f"{stem}.proto" for stem in PROTOS),
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed; its messages are above")
    return FileDescriptorSet.FromString(descriptors.read_bytes())


def _head(stem: str, rules: str) -> str:
    return f"{rules}{MADE_BY}{TOOLS_VERSION} from protos/{stem}.proto: change that one.\n"


def _module(file: FileDescriptorProto) -> str:
    stem = Path(file.name).stem
    lines = [
        f'"""Messages of `{file.name}`, in the private descriptor pool."""\n',
        *_imports(file),
        "from leasehold.wire.pool import add_file, message_class\n",
        "DESCRIPTOR = add_file(",
        *_literal(file.SerializeToString(deterministic=True)),
        ")\n",
        *(f'{kind.name} = message_class(DESCRIPTOR, "{kind.name}")' for kind in file.message_type),
        *(f"{each.name} = {each.number}" for kind in file.enum_type for each in kind.value),
    ]
    return _head(stem, MODULE_RULES) + "\n".join(lines) + "\n"


def _imports(file: FileDescriptorProto) -> Iterator[str]:
    if file.dependency:
        modules = sorted(f"{Path(name).stem}_pb2" for name in file.dependency)
        yield f"from leasehold.wire import {', '.join(modules)}"


def _literal(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), BYTES_PER_LINE):
        yield f"    {data[start : start + BYTES_PER_LINE]!r}"


def _types(stem: str, protoc_types: str) -> str:
    for other in PROTOS:
        plain = f"import {other}_pb2 as _{other}_pb2\n"
        protoc_types = protoc_types.replace(plain, f"from leasehold.wire {plain}")
    return _head(stem, TYPES_RULES) + protoc_types


def main() -> None:
    """Write all files in place."""
    for name, text in generate().items():
        (WIRE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
