"""Errors over the wire are those of the engine in this process; others see etcd's status and text.

A Leasehold server sends structured details beside them: see `leasehold.grpc.error_details`.
"""

import asyncio
import re
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import pytest

import leasehold
from leasehold import Put, Range, Txn
from leasehold.engine.interface import Engine
from leasehold.errors import LeaseholdError
from leasehold.wire import rpc_pb2 as pb
from tests.conformance.etcdctl import OWN_LIMITS
from tests.engines.conftest import Start, remote_engine
from tests.support.servers import etcd_program

DEADLINE_S: Final = 60.0
UNUSED: Final = 0x7E57


async def _ended_lease(engine: Engine) -> None:
    lease = (await engine.grant(60.0)).id
    await engine.revoke(lease)
    await engine.put(b"a", b"", lease=lease)


async def _lease_exists(engine: Engine) -> None:
    lease = (await engine.grant(60.0)).id
    await engine.grant(60.0, lease=lease)


async def _compacted(engine: Engine) -> None:
    for _ in range(3):
        await engine.put(b"a", b"")
    revision = (await engine.range(b"a")).revision
    await engine.compact(revision)
    await engine.range(b"a", revision=revision - 1)


async def _future(engine: Engine) -> None:
    revision = (await engine.range(b"a")).revision
    await engine.range(b"a", revision=revision + 1000)


async def _nested_future(engine: Engine) -> None:
    revision = (await engine.range(b"a")).revision
    inner = Txn(success=[Range(b"b", revision=revision + 1000)])
    await engine.txn(success=[Put(b"a", b""), inner])


FAILING: Final[dict[str, Callable[[Engine], Awaitable[object]]]] = {
    "unknown lease": lambda engine: engine.put(b"a", b"", lease=UNUSED),
    "unknown lease, revoked": lambda engine: engine.revoke(UNUSED),
    "ended lease": _ended_lease,
    "existing lease": _lease_exists,
    "no value to keep": lambda engine: engine.txn(success=[Put(b"nothing\xff", None)]),
    "twice": lambda engine: engine.txn(success=[Put(b"\xff", b"1"), Put(b"\xff", b"2")]),
    "many": lambda engine: engine.txn(success=[Put(b"%d" % n, b"") for n in range(200)]),
    "compacted": _compacted,
    "future": _future,
    "nested": _nested_future,
}


def _shown(error: LeaseholdError) -> tuple[object, ...]:
    """Return all of an error; ids and revisions differ from run to run."""
    text = re.sub(r"\b[0-9a-f]{16}\b|\b\d+\b", "N", str(error))
    return type(error), text, len(error.args), error.not_executed


@pytest.mark.parametrize("name", FAILING)
def test_an_error_of_the_server_is_the_error_of_the_engine_in_this_process(
    name: str, start_server: Start
) -> None:
    async def main() -> None:
        shown = []
        async with (
            leasehold.open_engine("memory:") as embedded,
            await remote_engine(start_server("leasehold")) as remote,
        ):
            for engine in (embedded, remote):
                with pytest.raises(LeaseholdError) as raised:
                    await FAILING[name](engine)
                shown.append(_shown(raised.value))
        assert shown[0] == shown[1]

    asyncio.run(main())


def test_the_real_revisions_are_in_the_error(start_server: Start) -> None:
    async def main() -> None:
        async with await remote_engine(start_server("leasehold")) as engine:
            revision = (await engine.put(b"a", b"")).revision
            with pytest.raises(leasehold.FutureRevision) as future:
                await engine.range(b"a", revision=revision + 5)
            assert future.value.args == (revision + 5, revision)
            await engine.compact(revision)
            with pytest.raises(leasehold.Compacted) as compacted:
                await engine.range(b"a", revision=revision - 1)
            assert compacted.value.args == (revision - 1, revision)

    asyncio.run(main())


REFUSED: Final = [
    (
        "KV/Put",
        pb.PutRequest(key=b"a", lease=UNUSED),
        grpc.StatusCode.NOT_FOUND,
        "etcdserver: requested lease not found",
    ),
    (
        "KV/Put",
        pb.PutRequest(),
        grpc.StatusCode.INVALID_ARGUMENT,
        "etcdserver: key is not provided",
    ),
    (
        "KV/Range",
        pb.RangeRequest(key=b"a", revision=1 << 40),
        grpc.StatusCode.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision is a future revision",
    ),
    (
        "KV/Put",
        pb.PutRequest(key=b"a", value=bytes(1_600_000)),
        grpc.StatusCode.INVALID_ARGUMENT,
        "etcdserver: request is too large",
    ),
]


@pytest.mark.parametrize("kind", ["leasehold", "etcd"])
@pytest.mark.parametrize(("method", "request_", "status", "text"), REFUSED)
def test_grpcio_receives_the_status_and_text_of_etcd(
    method: str,
    request_: pb.PutRequest | pb.RangeRequest,
    status: grpc.StatusCode,
    text: str,
    kind: str,
    start_server: Start,
) -> None:
    if kind == "etcd" and etcd_program("etcd") is None:
        pytest.skip("needs etcd")
    with grpc.insecure_channel(start_server(kind)[0].removeprefix("http://")) as channel:
        call = channel.unary_unary(f"/etcdserverpb.{method}", None, None)
        with pytest.raises(grpc.RpcError) as raised:
            call(request_.SerializeToString(), timeout=DEADLINE_S)
    assert (raised.value.code(), raised.value.details()) == (status, text)
    metadata: Any = raised.value.trailing_metadata() or ()
    keys = [key for key, _ in metadata]
    assert keys == (["grpc-status-details-bin"] if kind == "leasehold" else [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("put", "a", "b", "--lease=7e57"), "etcdserver: requested lease not found"),
        (("lease", "revoke", "7e57"), "etcdserver: requested lease not found"),
        (
            ("get", "a", "--rev=99999999"),
            "etcdserver: mvcc: required revision is a future revision",
        ),
    ],
)
def test_etcdctl_prints_the_text_of_etcd(
    arguments: tuple[str, ...], text: str, start_server: Start
) -> None:
    program = etcd_program("etcdctl")
    if program is None:
        pytest.skip("needs etcdctl")
    printed = [
        subprocess.run(  # noqa: S603  etcdctl
            [program, *OWN_LIMITS, "--endpoints", start_server(kind)[0], *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        for kind in ("leasehold", "etcd")
    ]
    ours, theirs = ((done.returncode, done.stderr.splitlines()[-1]) for done in printed)
    assert ours == theirs
    assert text in ours[1]
