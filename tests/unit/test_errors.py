"""Which errors are definite, what each one says, and that they survive pickling."""

import asyncio
import concurrent.futures
import copy
import errno
import pickle
import ssl
from types import MappingProxyType

import pytest

from leasehold import (
    Closed,
    ConnectFailed,
    ConnectionLost,
    DamagedJournal,
    DirectoryInUse,
    EndReason,
    FileAlreadyOpen,
    FileExists,
    FileNotFound,
    ForeignJournal,
    IsADirectory,
    JournalFailed,
    LeaseBatchError,
    LeaseDenied,
    LeaseholdError,
    NotADirectory,
    Status,
    StorageError,
    UnknownLease,
    is_definite,
)
from leasehold.errors import STATUS_IS_DEFINITE

DEFINITE = {
    Status.INVALID_ARGUMENT,
    Status.NOT_FOUND,
    Status.FAILED_PRECONDITION,
    Status.OUT_OF_RANGE,
    Status.UNIMPLEMENTED,
    Status.PERMISSION_DENIED,
    # Not named by the contract; neither goes away by asking again.
    Status.ALREADY_EXISTS,
    Status.DATA_LOSS,
}
INDEFINITE = {
    Status.UNAVAILABLE,
    Status.DEADLINE_EXCEEDED,
    Status.RESOURCE_EXHAUSTED,
    Status.ABORTED,
    Status.CANCELLED,
    Status.INTERNAL,
    Status.UNKNOWN,
    Status.UNAUTHENTICATED,
}


class DeniedByQuota(LeaseDenied):
    """What a user's policy may raise."""


def _with_status(status: Status) -> LeaseholdError:
    kind: type[LeaseholdError] = type("Made", (LeaseholdError,), {"status": status})
    return kind("made for this test")


def test_the_status_codes_are_those_of_grpc() -> None:
    names = (
        "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
        "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE "
        "UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
    )
    assert [(status.name, status.value) for status in Status] == [
        (name, code) for code, name in enumerate(names.split())
    ]


def test_the_table_has_every_status_but_ok() -> None:
    assert set(STATUS_IS_DEFINITE) == set(Status) - {Status.OK} == DEFINITE | INDEFINITE


@pytest.mark.parametrize("status", sorted(DEFINITE))
def test_a_definite_status_will_not_work_again(status: Status) -> None:
    assert is_definite(_with_status(status))


@pytest.mark.parametrize("status", sorted(INDEFINITE))
def test_an_indefinite_status_says_nothing_about_the_future(status: Status) -> None:
    assert not is_definite(_with_status(status))


@pytest.mark.parametrize(
    "error",
    [
        UnknownLease("cookie"),
        LeaseDenied("full"),
        DeniedByQuota("full"),
        Closed("closed"),
        ForeignJournal("not ours"),
        DamagedJournal("row 7"),
        KeyError("missing"),
        ValueError("bad"),
        TypeError("bad"),
        AttributeError("bad"),
        ZeroDivisionError(),
        RuntimeError("bad"),
        NotImplementedError(),
        AssertionError(),
        MemoryError(),
        StopAsyncIteration(),
        Exception(),
        concurrent.futures.InvalidStateError(),
    ],
    ids=repr,
)
def test_an_exception_that_is_not_of_io_is_definite(error: BaseException) -> None:
    assert is_definite(error)


@pytest.mark.parametrize(
    "error",
    [
        ConnectFailed("cannot connect to 127.0.0.1:2379: Connection refused"),
        ConnectionLost("gone"),
        StorageError("no such disk"),
        DirectoryInUse("by process 7"),
        JournalFailed("disk full"),
        LeaseBatchError({"lease": KeyError()}),
        OSError(errno.EIO, "bad disk"),
        ConnectionResetError(),
        ConnectionRefusedError(),
        BrokenPipeError(),
        FileNotFoundError(),
        PermissionError(),
        BlockingIOError(),
        InterruptedError(),
        ssl.SSLError(),
        TimeoutError(),
        asyncio.TimeoutError(),  # noqa: UP041  the old name must mean the same
        EOFError(),
        asyncio.IncompleteReadError(b"", 1),
    ],
    ids=repr,
)
def test_an_exception_of_io_is_indefinite(error: BaseException) -> None:
    assert not is_definite(error)


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(), GeneratorExit()],
    ids=repr,
)
def test_what_is_about_the_caller_says_nothing_about_the_lease(error: BaseException) -> None:
    assert not is_definite(error)


def _same(one: BaseException, other: BaseException) -> bool:
    return (
        type(one) is type(other)
        and str(one) == str(other)
        and repr(one.args) == repr(other.args)
        and repr(vars(one)) == repr(vars(other))
    )


ERRORS: list[LeaseholdError] = [
    LeaseholdError("something"),
    UnknownLease("cookie"),
    UnknownLease(b"cookie", EndReason.EXPIRED),
    UnknownLease(7, EndReason.CANCELLED),
    LeaseDenied("full"),
    LeaseDenied("full", lease="cookie", requested=10.0),
    DeniedByQuota("full", lease="cookie", requested=10.0),
    LeaseBatchError({"one": LeaseDenied("full", lease="one"), "two": UnknownLease("two")}),
    Closed("landlord 'a' was closed"),
    ConnectFailed("cannot connect to 127.0.0.1:2379: Connection refused"),
    ConnectionLost("gone"),
    ConnectionLost(errno.ECONNRESET, "gone"),
    DamagedJournal("row 7 has the wrong checksum"),
    JournalFailed("disk full"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_pickles_with_all_its_attributes(error: LeaseholdError) -> None:
    assert _same(pickle.loads(pickle.dumps(error)), error)  # noqa: S301  our own bytes


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_an_error_is_copied_with_all_its_attributes(error: LeaseholdError, copied: object) -> None:
    assert callable(copied)
    assert _same(copied(error), error)


@pytest.mark.parametrize("make", [lambda: LeaseDenied("full", lease=1), lambda: UnknownLease("a")])
def test_an_error_keeps_its_notes_when_pickled(make: object) -> None:
    assert callable(make)
    error = make()
    error.add_note("seen by the night watch")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert again.__notes__ == ["seen by the night watch"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            UnknownLease("abc"),
            "lease 'abc' does not exist (it may have ended long ago)",
        ),
        (UnknownLease("abc", EndReason.EXPIRED), "lease 'abc' has ended: expired"),
        (UnknownLease("abc", EndReason.CANCELLED), "lease 'abc' has ended: cancelled"),
        (LeaseDenied("full"), "a grant was denied: full"),
        (LeaseDenied("full", requested=5.0), "a grant of 5.0 was denied: full"),
        (LeaseDenied("full", lease="abc"), "a term for lease 'abc' was denied: full"),
        (
            LeaseDenied("full", lease="abc", requested=5.0),
            "a term for lease 'abc' of 5.0 was denied: full",
        ),
        (LeaseBatchError({"a": KeyError("k")}), "1 of the batch failed; 'a': 'k'"),
        (
            LeaseBatchError({"a": KeyError("k"), "b": KeyError("l"), "c": KeyError("m")}),
            "3 of the batch failed; 'a': 'k' (and 2 more)",
        ),
        (Closed("landlord 'x' was closed"), "landlord 'x' was closed"),
        (ConnectionLost("reset by peer"), "reset by peer"),
        (DamagedJournal("row 7 has the wrong checksum"), "row 7 has the wrong checksum"),
    ],
)
def test_an_error_says_what_happened(error: LeaseholdError, text: str) -> None:
    assert str(error) == text


def test_an_unknown_lease_carries_lease_and_reason() -> None:
    error = UnknownLease("abc", EndReason.EXPIRED)
    assert (error.lease, error.reason) == ("abc", "expired")
    assert UnknownLease("abc").reason == "unknown"


def test_the_reasons_are_the_words_of_the_contract() -> None:
    assert [str(reason) for reason in EndReason] == ["expired", "cancelled", "unknown"]


def test_a_denial_carries_why_lease_and_request() -> None:
    error = LeaseDenied("full", lease="abc", requested=5.0)
    assert (error.why, error.lease, error.requested) == ("full", "abc", 5.0)


def test_a_batch_error_keeps_its_own_copy_of_the_failures() -> None:
    failures = {"a": KeyError("k")}
    error = LeaseBatchError(MappingProxyType(failures))
    failures.clear()
    assert list(error.failures) == ["a"]


def test_a_batch_error_without_failures_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one failure"):
        LeaseBatchError({})


def test_a_batch_error_pickles_even_if_made_of_a_read_only_mapping() -> None:
    error = LeaseBatchError(MappingProxyType({"a": KeyError("k")}))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert repr(again.failures) == repr(error.failures)


@pytest.mark.parametrize("kind", [ConnectFailed, ConnectionLost])
def test_a_connection_that_is_none_is_caught_as_the_builtin_error(
    kind: type[ConnectionError],
) -> None:
    with pytest.raises(ConnectionError, match="gone"):
        raise kind("gone")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FileNotFound, errno.ENOENT),
        (FileExists, errno.EEXIST),
        (NotADirectory, errno.ENOTDIR),
        (IsADirectory, errno.EISDIR),
    ],
)
def test_errors_of_files_have_the_number_of_the_builtin_error(
    kind: type[FileNotFound | FileExists | NotADirectory | IsADirectory], code: int
) -> None:
    error = kind("logs/a")
    assert type(OSError(code, "")) in kind.__bases__
    assert (error.errno, error.path) == (code, "logs/a")
    assert str(error) == f"'logs/a': {error.strerror}"
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert (copied.errno, copied.path, str(copied)) == (code, "logs/a", str(error))


def test_a_file_that_is_open_names_its_holder() -> None:
    error = FileAlreadyOpen("logs/a", "web-7")
    assert str(error) == "'logs/a' is already open for writing by web-7"
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert copied.holder == "web-7"
    assert "this client" in str(FileAlreadyOpen("logs/a", "web-7", is_own=True))
