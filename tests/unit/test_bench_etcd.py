"""The pure parts of the benchmark beside etcd: what is sent, how it is read, who wins."""

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
from hpack import Decoder

from benchmarks.etcd import messages
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.go_hpack import Field, GoEncoder, string
from benchmarks.etcd.h2load import parse
from benchmarks.etcd.load import LoadResult
from benchmarks.etcd.plot import write_plot
from benchmarks.etcd.profile import top_functions
from benchmarks.etcd.report import FEWEST_STEADY, Results, ratio, tables, worst
from benchmarks.etcd.rounds import (
    ALL_CORES,
    CHANGING,
    CONSTANT,
    PER_CORE,
    Cell,
    Pair,
    cells,
    is_steady,
)
from benchmarks.etcd.script import (
    FRAME_HEADER,
    HeaderWriter,
    Script,
    constant_timeout,
    stream_of,
    timeouts,
)
from benchmarks.etcd.servers import ETCD, OURS
from benchmarks.etcd.syncs import Syncs
from benchmarks.etcd.workloads import CASES

AUTHORITY = "127.0.0.1:2379"


def blocks(script: Script) -> list[bytes]:
    """The header blocks of a script, with the frames checked on the way."""
    found = []
    for call in range(len(script)):
        piece = bytes(script.content[script.starts[call] : script.starts[call + 1]])
        size = int.from_bytes(piece[:3], "big")
        assert piece[3:FRAME_HEADER] == b"\x01\x04" + stream_of(call).to_bytes(4, "big")
        data = piece[FRAME_HEADER + size :]
        assert data[3:FRAME_HEADER] == b"\x00\x01" + stream_of(call).to_bytes(4, "big")
        assert int.from_bytes(data[:3], "big") == len(data) - FRAME_HEADER
        found.append(piece[FRAME_HEADER : FRAME_HEADER + size])
    return found


def test_every_block_says_what_gos_client_says_though_the_table_overflows() -> None:
    headers = HeaderWriter(AUTHORITY, timeouts(Random(1)))
    script = Script(headers, messages.PUT, [b"body"] * 1_000)
    expected = timeouts(Random(1))
    decoder = Decoder()
    for block in blocks(script):
        assert decoder.decode(block, raw=True) == [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", messages.PUT.encode()),
            (b":authority", AUTHORITY.encode()),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"grpc-go/1.38.0"),
            (b"te", b"trailers"),
            (b"grpc-timeout", next(expected)),
            (b"client-api-version", b"3.5"),
        ]


def test_the_first_block_is_that_of_etcdctl() -> None:
    """As etcdctl 3.5.1 sent it for a Put."""
    headers = HeaderWriter("127.0.0.1:35399", iter([b"4988864u"]))
    (block,) = blocks(Script(headers, messages.PUT, [b""]))
    assert block.hex() == (
        "8386458f60a924882d9dcb6571af9b8b1aed4f418b089d5c0b8170dc65b65f7f5f8b1d75d0620d263d4c4d"
        "65647a8a9acac8b4c7602bb2f2e040027465864d833505b11f40899acac8b24d494f6a7f8669f79e79c6ad"
        "408d25062d495875996ee5b1063d5f03332e35"
    )


def test_constant_fields_are_sent_again_when_timeouts_have_pushed_them_out() -> None:
    headers = HeaderWriter(AUTHORITY, timeouts(Random(1)))
    found = blocks(Script(headers, messages.PUT, [b""] * 300))
    assert {len(block) for block in found[2:50]} == {16}  # eight indexes, one name, one string
    for constant in (messages.PUT.encode(), AUTHORITY.encode(), b"grpc-go/1.38.0"):
        sent = [call for call, block in enumerate(found) if string(constant) in block]
        gaps = {after - before for before, after in pairwise(sent)}
        assert sent[0] == 0
        assert len(sent) > 3
        assert gaps <= {71, 72, 73, 74}, gaps  # a table full of timeouts


def test_constant_headers_are_a_few_indexes_after_the_first_call() -> None:
    headers = HeaderWriter(AUTHORITY, constant_timeout())
    found = blocks(Script(headers, messages.PUT, [b""] * 200))
    assert len(set(found[1:])) == 1
    assert len(found[1]) == 9


@pytest.mark.parametrize("table_size", [0, 100, 4096, 65536])
def test_a_smaller_table_is_announced_and_kept_to(table_size: int) -> None:
    decoder = Decoder()
    decoder.max_allowed_table_size = min(table_size, 4096)
    encoder = GoEncoder(table_size)
    rng = Random(table_size)
    for _ in range(300):
        fields: list[Field] = [
            (b"x-name-%d" % rng.randrange(4), b"value-%d" % rng.randrange(40)) for _ in range(5)
        ]
        assert decoder.decode(encoder.encode(fields), raw=True) == fields


def test_the_blocks_of_a_published_example_with_huffman_coding() -> None:
    """RFC 7541, C.4: three requests on one connection."""
    encoder = GoEncoder()
    first: list[Field] = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
    first.append((b":authority", b"www.example.com"))
    second = [*first, (b"cache-control", b"no-cache")]
    assert encoder.encode(first).hex() == "828684418cf1e3c2e5f23a6ba0ab90f4ff"
    assert encoder.encode(second).hex() == "828684be5886a8eb10649cbf"


def test_timeouts_differ_from_call_to_call_and_have_seven_digits() -> None:
    some = list(islice(timeouts(Random(2)), 20_000))
    assert len(set(some)) == len(some)
    assert {len(each) for each in some} == {len("4999843u")}


def test_messages_are_those_of_etcd() -> None:
    assert messages.put_request(b"k", b"v") == b"\x0a\x01k\x12\x01v"
    assert messages.lease_grant_request(60) == b"\x08\x3c"
    assert messages.lease_request(300) == b"\x08\xac\x02"
    value = messages.message(b"key", 2, 3, 4, b"value")
    answer = messages.message(messages.message(1, 2), value, None, 1)
    assert messages.key_values(answer) == [(b"key", 4, b"value")]
    assert messages.lease_id_and_ttl_s(messages.message(b"header", 7, 60)) == (7, 60)
    leases = b"".join(messages.message(None, messages.message(each)) for each in (5, 6))
    assert messages.leases_of(leases) == [5, 6]
    assert messages.prefix_end(b"bench/") == b"bench0"
    with pytest.raises(ValueError, match="beyond its message"):
        list(messages.fields(b"\x0a\x05k"))


H2LOAD = """
finished in {time}, 33323.23 req/s, 2.14MB/s
requests: 20000 total, 20000 done, {done} succeeded, {failed} failed, 0 errored, 0 timeout
status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 1.28MB (1345678) total, 78.15KB (80024) headers (savings 94%), 683.59KB (700000) data
"""


@pytest.mark.parametrize(("time", "seconds"), [("600.18ms", 0.60018), ("3.14s", 3.14)])
def test_what_h2load_says_is_understood(time: str, seconds: float) -> None:
    output = H2LOAD.format(time=time, done=20000, failed=0)
    succeeded, took_s, answer_bytes = parse(output)
    assert (succeeded, answer_bytes) == (20000, 700000)
    assert took_s == pytest.approx(seconds)


def test_failed_calls_of_h2load_fail_the_round() -> None:
    with pytest.raises(LoadFailed, match="19999 of 20000 calls"):
        parse(H2LOAD.format(time="1s", done=19999, failed=1))
    with pytest.raises(LoadFailed, match="something else"):
        parse("h2load: could not connect")


def result(rate: float) -> LoadResult:
    return LoadResult("put", rate, 1.0, int(rate), 3.0, 1e6 / rate, p50_ms=1.0, p99_ms=2.0)


def pair(cell: Cell, etcd: float, ours: float) -> Pair:
    return Pair(cell, {ETCD: result(etcd), OURS: result(ours)})


ALL_PUT = [
    Cell("put", headers, cores)
    for headers in (CONSTANT, CHANGING)
    for cores in (ALL_CORES, PER_CORE)
]


def results() -> Results:
    pairs = [
        pair(cell, 100.0, 100.0 * times * (2.0 if cell.headers == CONSTANT else 1.0))
        for times in (1.0, 1.2, 1.7)
        for cell in ALL_PUT
    ]
    return Results("a machine", 1.0, pairs, [Syncs(OURS, "put", 1_000, 20, 25)])


def test_ratios_are_taken_pair_by_pair_and_the_worse_headers_count() -> None:
    measured = results()
    found = ratio(measured.of(Cell("put", CONSTANT, ALL_CORES)))
    assert found is not None
    assert (found.median, found.low, found.high) == pytest.approx((2.4, 2.0, 3.4))
    assert worst(measured, CASES["put"], PER_CORE) == pytest.approx(1.2)
    assert worst(measured, CASES["range"], PER_CORE) is None


def test_unsteady_pairs_are_left_out_only_if_enough_steady_ones_are_there() -> None:
    assert is_steady([1.0, 1.3])
    assert not is_steady([1.0, 1.1, 1.5])
    cell = ALL_PUT[0]
    shaken = [replace(pair(cell, 100.0, 50.0), steady=False)] * 3
    steady = [pair(cell, 100.0, 300.0)] * FEWEST_STEADY
    few = ratio(Results("a machine", 1.0, [*shaken, *steady[1:]]).of(cell))
    enough = ratio(Results("a machine", 1.0, [*shaken, *steady]).of(cell))
    assert few is not None
    assert enough is not None
    assert (few.median, enough.median) == pytest.approx((0.5, 3.0))


def test_the_tables_say_what_was_reached_and_what_could_not_be_measured() -> None:
    report = tables(replace(results(), missing=["h2load is not there"]))
    verdict = report[0]
    assert verdict.rows == [
        [
            *("Put", "1.5", "2.40 (2.00..3.40)", "1.20 (1.00..1.70)"),
            *("2.40 (2.00..3.40)", "1.20 (1.00..1.70)", "NO, 1.20", "NO, 1.20"),
        ]
    ]
    assert "h2load is not there" in verdict.as_markdown()
    assert report[-1].rows[0][-2:] == ["25.0", "1.25"]


def test_without_h2load_or_a_second_core_the_rest_is_measured() -> None:
    assert cells(["put"], with_h2load=False, with_pinning=False) == [
        Cell("put", CHANGING, ALL_CORES)
    ]
    streams = cells(["stream"], with_h2load=True, with_pinning=True)
    assert {cell.headers for cell in streams} == {CHANGING}


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it is in the dependency group `bench`")
    path = tmp_path / "etcd.svg"
    write_plot(results(), path)
    assert "<svg" in path.read_text(encoding="utf-8")


def test_a_profile_is_read_by_own_time() -> None:
    assert top_functions("main;serve;parse 30\nmain;serve 60\nmain;parse 10\n") == [
        ("serve", 0.6),
        ("parse", 0.4),
    ]
