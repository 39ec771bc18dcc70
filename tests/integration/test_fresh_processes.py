"""What is imported, and which threads are started, in a process that has just begun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scripts import printed_by

NOT_FOR_HELP = [
    *("asyncio", "google.protobuf", "leasehold.engine", "leasehold.store"),
    *("leasehold.journal", "leasehold.sessions", "leasehold.locks"),
]


@pytest.mark.parametrize(
    ("arguments", "never"),
    [
        (["lease", "grant", "--help"], NOT_FOR_HELP),
        (["kv", "put", "--help"], NOT_FOR_HELP),
        (["permit", "grant", "--help"], NOT_FOR_HELP),
        (["status", "--help"], NOT_FOR_HELP),
        (["top", "--help"], [*NOT_FOR_HELP, "termios"]),
        (["lock", "--help"], [*NOT_FOR_HELP, "subprocess"]),
        (["elect", "--help"], [*NOT_FOR_HELP, "subprocess"]),
        (["kv", "get", "a", "--endpoint", "127.0.0.1:1"], ["leasehold.engine.embedded", "apsw"]),
        (
            ["serve", "--help"],
            [
                "leasehold.client",
                "leasehold.sessions",
                "leasehold.locks",
                "leasehold.cli.lease",
                "leasehold.server.app",
            ],
        ),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(
    arguments: list[str], never: list[str]
) -> None:
    program = f"""
import sys
from leasehold.cli import main
main({arguments!r})
print([name for name in {never!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_no_engine_is_imported_for_a_client_of_a_server() -> None:
    assert (
        printed_by("""
            import sys
            import leasehold.sync
            print("leasehold.engine.embedded" in sys.modules)
            leasehold.sync.open
            print("leasehold.engine.embedded" in sys.modules)
            print(hasattr(leasehold.sync, "opened"))
        """)
        == "False\nTrue\nFalse\n"
    )


# A client's own copy of the same names: under another file name, and not quite the same.
OTHER_COPY = """
syntax = "proto3";
package mvccpb;
message KeyValue { bytes key = 1; int64 lease = 6; string extra = 7; }
"""


IMPORT_BOTH = """
import {first}
import {second}
from leasehold.wire import kv_pb2
import other_pb2
theirs = other_pb2.KeyValue(key=b"k", lease=7, extra="e")
ours = kv_pb2.KeyValue.FromString(theirs.SerializeToString())
assert (ours.key, ours.lease) == (b"k", 7)
assert "extra" not in kv_pb2.KeyValue.DESCRIPTOR.fields_by_name
print("both")
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize(
    ("first", "second"), [("leasehold.wire.rpc_pb2", "other_pb2"), ("other_pb2", "leasehold.wire")]
)
def test_another_copy_of_the_same_names_can_be_imported_too(
    tmp_path: Path, implementation: str, first: str, second: str
) -> None:
    (tmp_path / "other.proto").write_text(OTHER_COPY)
    protoc = ["-m", "grpc_tools.protoc", f"-I{tmp_path}", f"--python_out={tmp_path}", "other.proto"]
    subprocess.run([sys.executable, *protoc], check=True, cwd=tmp_path, timeout=60)  # noqa: S603
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", IMPORT_BOTH.format(first=first, second=second)],
        env=os.environ
        | {"PYTHONPATH": path, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("both\n", "")


def test_the_first_use_by_many_threads_starts_one_thread() -> None:
    assert (
        printed_by("""
            import threading
            from concurrent.futures import ThreadPoolExecutor
            import leasehold.sync

            together = threading.Barrier(16)

            def work(_):
                together.wait()
                with leasehold.sync.open("memory:") as client:
                    return client.kv.put("a", "b").revision

            with ThreadPoolExecutor(16) as threads:
                print(set(threads.map(work, range(16))))
            print([each.name for each in threading.enumerate()].count("leasehold loop"))
        """)
        == "{2}\n1\n"
    )
