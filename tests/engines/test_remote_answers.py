"""What servers say, and what an engine makes of it: refusals, history, versions."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from leasehold import (
    CallFailed,
    CallRefused,
    Compacted,
    Delete,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    HistoryLost,
    LeaseExists,
    LeaseFull,
    LeaseholdError,
    NoSpace,
    Put,
    Range,
    TooManyOperations,
    Txn,
    UnknownKey,
    UnknownLease,
)
from leasehold.engine.remote import etcd_messages
from leasehold.engine.remote.caller import AGAIN, History, decoded
from leasehold.engine.remote.error_mapping import CallArguments, about_txn, is_useless, refusal_of
from leasehold.engine.remote.server_version import ServerInfo
from leasehold.errors import (
    STATUS_IS_DEFINITE,
    LeaseDenied,
    Status,
    TooBusy,
    TooLarge,
    is_definite,
)
from leasehold.grpc.error_details import decode_details, detail_of, encode_details
from leasehold.grpc.protocol import RpcError
from leasehold.keyspace import transaction_rules as txns
from leasehold.testing.simulation import run_virtual
from leasehold.wire import rpc_pb2 as pb
from tests.engines.scripted import RANGE, ScriptedChannel

ABOUT = CallArguments(b"key", 5, 9, 200, 128)

# Refusals.


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (Status.NOT_FOUND, "requested lease not found", UnknownLease(5)),
        (Status.FAILED_PRECONDITION, "lease already exists", LeaseExists(5)),
        (Status.INVALID_ARGUMENT, "key not found", UnknownKey(b"key")),
        (Status.INVALID_ARGUMENT, "key is not provided", EmptyKey()),
        (Status.INVALID_ARGUMENT, "duplicate key given in txn request", DuplicateKey(b"key")),
        (
            Status.INVALID_ARGUMENT,
            "too many operations in txn request",
            TooManyOperations(200, 128),
        ),
        (Status.OUT_OF_RANGE, "mvcc: required revision has been compacted", Compacted(9, 0)),
        (Status.OUT_OF_RANGE, "mvcc: required revision is a future revision", FutureRevision(9, 0)),
        (Status.RESOURCE_EXHAUSTED, "mvcc: database space exceeded", NoSpace(0, 0)),
        (Status.RESOURCE_EXHAUSTED, "too many requests", TooBusy),
        (Status.INVALID_ARGUMENT, "request is too large", TooLarge),
        (Status.INVALID_ARGUMENT, "value is provided", CallRefused),
        (Status.INVALID_ARGUMENT, "lease is provided", CallRefused),
        (Status.OUT_OF_RANGE, "too large lease TTL", CallRefused),
        (Status.FAILED_PRECONDITION, "authentication is not enabled", CallRefused),
        (Status.PERMISSION_DENIED, "permission denied", CallRefused),
        (Status.UNAUTHENTICATED, "invalid auth token", CallFailed),
        (Status.UNAVAILABLE, "server stopped", CallFailed),
        (Status.UNAVAILABLE, "request timed out", CallFailed),
        (Status.UNAVAILABLE, "no leader", CallFailed),
        (Status.UNAVAILABLE, "leader changed", CallFailed),
        (Status.UNKNOWN, "something new", CallFailed),
        (Status.DEADLINE_EXCEEDED, "context deadline exceeded", TimeoutError),
    ],
)
def test_every_refusal_of_etcd_is_an_error_of_ours(
    status: Status, text: str, expected: Exception | type[Exception]
) -> None:
    error = refusal_of(RpcError(status, f"etcdserver: {text}"), ABOUT)
    if isinstance(expected, type):
        assert type(error) is expected
    else:
        assert (type(error), error.args) == (type(expected), expected.args)


def _over_the_wire(error: LeaseholdError, *, is_whole_call: bool = True) -> RpcError:
    """Return what a client makes of the trailers with which a server sends an error."""
    detail = detail_of(error, is_whole_call=is_whole_call)
    sent = RpcError(error.status, "etcdserver: a text", detail=detail)
    encoded = encode_details(sent)
    assert encoded is not None
    return RpcError(sent.status, sent.message, detail=decode_details(encoded))


@pytest.mark.parametrize("lease", [1, -1, 31249, 2**63 - 1, -(2**63), 0x694D81F5A2C0CA0D, 10**17])
def test_what_our_server_sends_is_the_same_error_again(lease: int) -> None:
    for sent in (
        LeaseExists(lease),
        LeaseFull(lease, 100_000, 1_000_000),
        NoSpace(12_345_678, 400_000),
        NoSpace(1, 400_000),
        LeaseDenied("the policy does not allow it", lease=lease, requested=5.0),
        TooLarge("answer would be larger than 9 bytes; read fewer"),
    ):
        error = refusal_of(_over_the_wire(sent))
        assert isinstance(error, LeaseholdError)
        assert (type(error), error.args, str(error)) == (type(sent), sent.args, str(sent))
        assert error.not_executed


def test_an_error_of_a_part_of_a_call_does_not_show_that_the_call_was_not_executed() -> None:
    error = refusal_of(_over_the_wire(TooBusy("too many readers"), is_whole_call=False))
    assert isinstance(error, TooBusy)
    assert not error.not_executed


def test_a_key_that_is_too_long_for_the_details_is_taken_from_the_request() -> None:
    key = b"k" * 100_000
    error = refusal_of(_over_the_wire(UnknownKey(key)), CallArguments(key=key))
    assert (type(error), error.args) == (UnknownKey, (key,))


def test_texts_of_our_own_server_are_not_parsed() -> None:
    for sent in (LeaseExists(5), LeaseFull(5, 7, 9), NoSpace(9, 1), LeaseDenied("no")):
        error = refusal_of(RpcError(sent.status, str(sent)))
        assert type(error) in (CallRefused, TooBusy)


EXHAUSTED = Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("status", "text", "not_executed"),
    [
        (EXHAUSTED, "etcdserver: too many requests", True),
        (EXHAUSTED, "too many requests", True),
        (EXHAUSTED, "etcdserver: mvcc: database space exceeded", True),
        (EXHAUSTED, "grpc: received message larger than max (5000000 vs. 4194304)", False),
        (EXHAUSTED, "trying to send message larger than max (5000000 vs. 4194304)", False),
        (EXHAUSTED, "answer larger than this client accepts (2 vs. 1 bytes); read fewer", False),
        (Status.INVALID_ARGUMENT, "etcdserver: request is too large", True),
        (Status.INVALID_ARGUMENT, "etcdserver: answer would be larger than 9 bytes", True),
        (EXHAUSTED, "the server reset the call (ENHANCE_YOUR_CALM)", False),
        (EXHAUSTED, "something new", False),
        (EXHAUSTED, "a proxy says: too many requests, it seems", False),
        (Status.INVALID_ARGUMENT, "etcdserver: value is provided", True),
        (Status.PERMISSION_DENIED, "etcdserver: permission denied", True),
        (Status.NOT_FOUND, "etcdserver: requested lease not found", True),
        (Status.DATA_LOSS, "something is gone", False),
        (Status.UNAVAILABLE, "etcdserver: leader changed", False),
        (Status.UNAVAILABLE, "leasehold: the engine was closed", False),
        (Status.UNKNOWN, "something new", False),
        (Status.INTERNAL, "internal error", False),
        (Status.UNAUTHENTICATED, "etcdserver: invalid auth token", False),
    ],
)
def test_only_what_is_on_the_list_was_not_executed(
    status: Status, text: str, not_executed: bool
) -> None:
    error = refusal_of(RpcError(status, text), ABOUT)
    assert isinstance(error, LeaseholdError)
    assert error.not_executed is not_executed


@pytest.mark.parametrize(
    ("text", "request_bytes", "not_executed"),
    [
        ("grpc: received message larger than max (5000000 vs. 4194304)", 5_000_000, True),
        ("grpc: received message larger than max (unpacked more vs. 4194304)", 5_000_000, True),
        # The request is within the limit, so it was the answer that a proxy has received.
        ("grpc: received message larger than max (5000000 vs. 4194304)", 1_000, False),
        ("grpc: received message larger than max (5000000 vs. 4194304)", 4_194_304, False),
    ],
)
def test_a_message_above_a_limit_was_not_executed_if_it_was_the_request(
    text: str, request_bytes: int, not_executed: bool
) -> None:
    error = refusal_of(RpcError(EXHAUSTED, text), ABOUT, request_bytes)
    assert isinstance(error, TooLarge if not_executed else CallFailed)
    assert isinstance(error, ValueError) is not_executed
    assert error.not_executed is not_executed
    assert is_definite(error) is not_executed
    assert text in str(error)


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.OK])
def test_a_text_without_a_meaning_is_as_definite_as_its_status(status: Status) -> None:
    error = refusal_of(RpcError(status, "in other words"))
    assert is_definite(error) is STATUS_IS_DEFINITE[status]


def test_a_transaction_is_about_what_may_be_missing() -> None:
    inner = Txn([], [Put(b"kept", None)], [Range(b"r", revision=7)])
    txn = Txn([], [Put(b"a", b""), Delete(b"b"), Put(b"c", b"", 9)], [inner])
    assert about_txn(txn) == CallArguments(b"kept", 9, 7)
    assert about_txn(Txn()) == CallArguments()


@pytest.mark.parametrize(
    ("text", "of_several", "alone"),
    [
        ("etcdserver: no leader", True, True),
        ("etcdserver: server stopped", True, True),
        ("etcdserver: request timed out", True, False),
        ("etcdserver: request timed out, possibly due to previous leader failure", True, False),
        ("etcdserver: leader changed", False, False),
        ("transport is closing", False, False),
    ],
)
def test_a_member_is_left_that_cannot_reach_the_others(
    text: str, of_several: bool, alone: bool
) -> None:
    for has_others, expected in ((True, of_several), (False, alone)):
        assert is_useless(RpcError(Status.UNAVAILABLE, text), has_others=has_others) is expected
        assert not is_useless(RpcError(Status.UNKNOWN, text), has_others=has_others)


@pytest.mark.parametrize("message", ["etcdserver: leader changed", "etcdserver: no leader"])
def test_what_only_reads_is_asked_again_until_there_is_a_leader(message: str) -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            answer, refusals = channel.answers[RANGE], iter(range(5))

            def refuse(request: bytes) -> Message:
                if next(refusals, None) is not None:
                    raise RpcError(Status.UNAVAILABLE, message)
                return answer(request)

            channel.answers[RANGE] = refuse
            assert (await engine.range(b"a")).revision == 1

    run_virtual(main)


def test_what_may_have_been_done_is_never_asked_again() -> None:
    async def main() -> None:
        channel, asked = ScriptedChannel(), []

        def refuse(request: bytes) -> Message:
            asked.append(request)
            raise RpcError(Status.UNAVAILABLE, "etcdserver: leader changed")

        async with await channel.engine() as engine:
            for path in ("KV/Put", "KV/Txn", "KV/DeleteRange", "Lease/LeaseGrant"):
                channel.answers[f"/etcdserverpb.{path}"] = refuse
            calls = [
                engine.put(b"a", b""),
                engine.txn(success=[Put(b"a", b"")]),
                engine.delete(b"a"),
                engine.grant(10),
            ]
            for call in calls:
                with pytest.raises(CallFailed, match="leader changed"):
                    await call
            assert len(asked) == len(calls)

    run_virtual(main)


def test_what_only_reads_is_not_asked_again_for_ever() -> None:
    async def main() -> None:
        channel, asked = ScriptedChannel(), []

        def refuse(request: bytes) -> Message:
            asked.append(request)
            raise RpcError(Status.UNAVAILABLE, "etcdserver: no leader")

        async with await channel.engine() as engine:
            channel.answers[RANGE] = refuse
            with pytest.raises(CallFailed, match="no leader"):
                await engine.range(b"a")
            assert len(asked) == 1 + AGAIN + 1, "the next connection is looked at first"

    run_virtual(main)


# History.


class Told:
    def __init__(self) -> None:
        self.losses: list[HistoryLost] = []
        self.history = History(self.losses.append)


def test_a_changed_cluster_id_is_history_lost_for_good() -> None:
    told = Told()
    told.history.check_answer(7, 10)
    with pytest.raises(HistoryLost, match="cluster id changed from 7 to 8"):
        told.history.check_cluster_id(8)
    assert len(told.losses) == 1
    for again in (told.history.check, lambda: told.history.check_answer(7, 11)):
        with pytest.raises(HistoryLost):
            again()
    assert len(told.losses) == 1


def test_a_revision_below_one_already_seen_is_history_lost() -> None:
    told = Told()
    told.history.check_answer(7, 10)
    floor = told.history.floor
    with pytest.raises(HistoryLost, match="revision went back from 10 to 9"):
        told.history.check_answer(7, 9, floor)
    assert len(told.losses) == 1


def test_answers_to_calls_under_way_at_once_may_come_in_any_order() -> None:
    told = Told()
    floors = [told.history.floor for _ in range(3)]  # all are sent, then all are answered
    for revision, floor in zip((12, 10, 11), floors, strict=True):
        told.history.check_answer(7, revision, floor)
    assert told.history.floor == 12
    assert not told.losses


def test_an_answer_that_does_not_say_its_cluster_says_nothing_of_history() -> None:
    told = Told()
    told.history.check_answer(7, 10)
    told.history.check_cluster_id(0)
    assert (told.history.cluster_id, told.losses) == (7, [])


def test_events_count_as_seen() -> None:
    told = Told()
    told.history.check_answer(7, 10)
    told.history.record_revision(20)
    told.history.record_revision(15)
    assert told.history.floor == 20


def test_what_is_lost_is_told_by_every_call() -> None:
    async def main() -> None:
        channel = ScriptedChannel()
        async with await channel.engine() as engine:
            channel.revision = 10
            await engine.range(b"a")
            channel.revision = 9
            calls: list[Callable[[], Any]] = [
                lambda: engine.range(b"a"),
                lambda: engine.put(b"a", b""),
                lambda: engine.delete(b"a"),
                engine.txn,
                lambda: engine.compact(1),
                lambda: engine.grant(10),
                lambda: engine.renew(1),
                lambda: engine.revoke(1),
                lambda: engine.time_to_live(1),
                engine.leases,
            ]
            for call in calls:
                with pytest.raises(HistoryLost):
                    await call()

    run_virtual(main)


def test_an_answer_that_cannot_be_read_says_nothing_of_what_was_done() -> None:
    with pytest.raises(CallFailed, match="the response to /a/B cannot be decoded"):
        decoded(pb.RangeResponse, b"\xff", "/a/B")


# Versions.


@pytest.mark.parametrize(
    ("version", "trusts_progress", "may_renew_when_deposed"),
    [
        ("3.3.27", False, True),
        ("3.4.24", False, True),
        ("3.4.25", True, True),
        ("3.5.0", False, True),
        ("3.5.1", False, True),
        ("3.5.7", False, True),
        ("3.5.8", True, True),
        ("3.5.19", True, True),
        ("3.5.20", True, False),
        ("3.6.0", True, False),
        ("3.10.0", True, False),
        ("4.0.0", True, False),
        ("3.5.8-rc.1", True, True),
        ("", False, False),
        ("unknown", False, False),
    ],
)
def test_what_is_trusted_depends_on_the_version(
    version: str, trusts_progress: bool, may_renew_when_deposed: bool
) -> None:
    server = ServerInfo(is_leasehold=False, version=version)
    assert server.trusts_progress is trusts_progress
    assert server.may_renew_when_deposed is may_renew_when_deposed
    ours = ServerInfo(is_leasehold=True, version=version)
    assert ours.trusts_progress
    assert not ours.may_renew_when_deposed


@pytest.mark.parametrize(
    ("version", "warnings"), [("3.5.19", 1), ("3.5.20", 0), ("3.6.1", 0), ("ours", 0)]
)
def test_there_is_one_warning_where_a_deposed_leader_may_renew(
    version: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        channel = ScriptedChannel(version)
        async with await channel.engine() as engine:
            assert str(engine.server) == ("Leasehold" if version == "ours" else f"etcd {version}")
            assert engine.limits.min_ttl == (0.001 if version == "ours" else 2.0)

    with caplog.at_level(logging.WARNING):
        run_virtual(main)
    said = [record.message for record in caplog.records if "deposed" in record.message]
    assert len(said) == warnings
    assert all(each.startswith(f"etcd {version}: a deposed leader may confirm") for each in said)


@pytest.mark.parametrize(
    ("version", "is_padded"),
    [("3.4.19", True), ("3.4.20", False), ("3.5.4", True), ("3.5.5", False), ("3.6.0", False)],
)
def test_an_etcd_that_would_end_is_asked_for_no_transaction_that_only_reads(
    version: str, is_padded: bool
) -> None:
    assert ServerInfo(is_leasehold=False, version=version).reads_in_txns is not is_padded
    request = etcd_messages.txn_request(Txn([], [Range(b"a")], [Range(b"b")]))
    if is_padded:
        etcd_messages.pad(request)
    kinds = [operation.WhichOneof("request") for operation in request.success]
    assert kinds == ["request_range", "request_txn"][: 1 + is_padded]
    assert len(request.failure) == 1 + is_padded


def test_what_writes_is_not_taken_for_what_only_reads() -> None:
    assert txns.has_only_ranges(Txn([], [Range(b"a")], []))
    assert not txns.has_only_ranges(Txn([], [Range(b"a")], [Delete(b"a")]))


def test_a_nested_read_is_a_write_by_the_rule_of_etcd_only() -> None:
    nested = Txn([], [Txn([], [Range(b"a")], [])], [])
    assert not txns.has_only_ranges(nested)
    assert txns.only_reads(nested)
    assert not txns.only_reads(Txn([], [Txn([], [], [Delete(b"a")])], []))
