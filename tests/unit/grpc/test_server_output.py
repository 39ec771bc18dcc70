"""The header blocks of answers, as the library `hpack` decodes them."""

import hpack
import pytest

from leasehold.errors import Status
from leasehold.grpc import server_output
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.server_output import AnswerBlocks, failed_trailers, ok_trailers

HEAD = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0")]


class Reader:
    """The peer's side of a connection."""

    def __init__(self) -> None:
        self.decoder = hpack.Decoder()

    def read(self, block: bytes) -> list[tuple[str, str]]:
        return [(str(name), str(value)) for name, value in self.decoder.decode(block)]


@pytest.fixture
def blocks() -> AnswerBlocks:
    return AnswerBlocks()


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_every_answer_says_the_same_whatever_is_in_the_table(
    blocks: AnswerBlocks, reader: Reader
) -> None:
    for _ in range(3):
        assert reader.read(blocks.head()) == HEAD
        assert reader.read(blocks.trailers()) == TRAILERS


def test_heads_may_come_before_any_trailers(blocks: AnswerBlocks, reader: Reader) -> None:
    assert [reader.read(blocks.head()) for _ in range(3)] == [HEAD] * 3
    assert [reader.read(blocks.trailers()) for _ in range(3)] == [TRAILERS] * 3
    assert reader.read(blocks.head()) == HEAD


def test_once_primed_the_constants_say_the_same(blocks: AnswerBlocks, reader: Reader) -> None:
    was_primed = [blocks.is_primed]
    for block in (blocks.head, blocks.trailers, blocks.head, blocks.trailers):
        reader.read(block())
        was_primed.append(blocks.is_primed)
    assert was_primed == [False, False, False, False, True], "once the short block has been seen"
    assert reader.read(server_output.HEAD) == HEAD
    assert reader.read(server_output.TRAILERS) == TRAILERS


@pytest.mark.parametrize("calls_before", [0, 1, 2])
@pytest.mark.parametrize("table_bytes", [0, 100, 4095])
def test_a_smaller_table_is_left_empty_and_said_to_be(
    blocks: AnswerBlocks, reader: Reader, calls_before: int, table_bytes: int
) -> None:
    for _ in range(calls_before):
        reader.read(blocks.head())
        reader.read(blocks.trailers())
    blocks.set_table_size(table_bytes)
    reader.decoder.max_allowed_table_size = table_bytes
    for _ in range(3):
        assert reader.read(blocks.head()) == HEAD
        assert reader.read(blocks.trailers()) == TRAILERS
    assert not blocks.is_primed
    assert reader.decoder.header_table_size == 0


def test_a_smaller_table_between_head_and_trailers(blocks: AnswerBlocks, reader: Reader) -> None:
    reader.read(blocks.head())
    blocks.set_table_size(0)
    reader.decoder.max_allowed_table_size = 0
    assert reader.read(blocks.trailers()) == TRAILERS


def test_a_table_made_larger_again_stays_empty(blocks: AnswerBlocks, reader: Reader) -> None:
    blocks.set_table_size(0)
    blocks.set_table_size(4096)
    assert reader.read(blocks.head()) == HEAD
    assert reader.read(blocks.trailers()) == TRAILERS
    assert not blocks.is_primed


def test_a_larger_table_changes_nothing(blocks: AnswerBlocks, reader: Reader) -> None:
    blocks.set_table_size(65_536)
    for _ in range(2):
        assert reader.read(blocks.head()) == HEAD
        assert reader.read(blocks.trailers()) == TRAILERS
    assert blocks.is_primed


def test_a_failed_call_has_one_block_or_only_trailers(blocks: AnswerBlocks, reader: Reader) -> None:
    trailers = failed_trailers(RpcError(Status.NOT_FOUND, "no"))
    said = [("grpc-status", "5"), ("grpc-message", "no")]
    assert reader.read(blocks.failed(trailers, is_only_block=True)) == HEAD + said
    assert reader.read(blocks.failed(trailers, is_only_block=False)) == said


def test_a_failure_without_a_message_has_no_such_field(reader: Reader) -> None:
    assert reader.read(failed_trailers(RpcError(Status.ABORTED, ""))) == [("grpc-status", "10")]


@pytest.mark.parametrize("length", [1, 125, 126, 127, 128, 254, 255, 256, 16_000, 100_000])
def test_messages_of_any_length_are_encoded(reader: Reader, length: int) -> None:
    reader.decoder.max_header_list_size = 2 * length + 1_000
    fields = dict(reader.read(failed_trailers(RpcError(Status.ABORTED, "x" * length))))
    assert fields["grpc-message"] == "x" * length


@pytest.mark.parametrize("is_smaller", [False, True])
def test_a_page_has_the_fields_that_it_says_and_no_other(
    blocks: AnswerBlocks, reader: Reader, *, is_smaller: bool
) -> None:
    reader.read(blocks.head())
    if is_smaller:
        blocks.set_table_size(0)
        reader.decoder.max_allowed_table_size = 0
    said = [(":status", "415"), ("content-type", "text/plain"), ("content-length", "3")]
    fields = tuple((name.encode(), value.encode()) for name, value in said)
    assert reader.read(blocks.plain(fields)) == said
    assert reader.read(blocks.head()) == HEAD


def test_metadata_of_a_head_comes_behind_what_every_head_says(
    blocks: AnswerBlocks, reader: Reader
) -> None:
    for _ in range(3):
        assert reader.read(blocks.head(((b"x-node", b"1"),))) == [*HEAD, ("x-node", "1")]
        assert reader.read(blocks.head()) == HEAD


def test_metadata_of_trailers_comes_behind_the_status(reader: Reader) -> None:
    assert reader.read(ok_trailers(((b"x-cost", b"7"),))) == [*TRAILERS, ("x-cost", "7")]
    failed = RpcError(Status.ABORTED, "no", metadata=((b"x-cost", b"7"),))
    assert reader.read(failed_trailers(failed)) == [
        ("grpc-status", "10"),
        ("grpc-message", "no"),
        ("x-cost", "7"),
    ]
