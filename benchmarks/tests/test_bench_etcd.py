"""The pure parts of the benchmark against etcd: requests, decoding, verdicts."""

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
from hpack import Decoder

from benchmarks.common.stats import Spread
from benchmarks.etcd import messages, servers
from benchmarks.etcd.connection import LoadFailed
from benchmarks.etcd.go_hpack import Field, GoEncoder, string
from benchmarks.etcd.h2load import parse
from benchmarks.etcd.parts import Run
from benchmarks.etcd.plot import write_plot
from benchmarks.etcd.profile import top_functions
from benchmarks.etcd.report import tables
from benchmarks.etcd.samples import (
    EXPIRY,
    LAST_S,
    LATENCY,
    OFFERED,
    P99_MS,
    PER_CPU,
    RATE,
    THROUGHPUT,
    Cell,
    Pair,
    Results,
    ratio,
)
from benchmarks.etcd.scale import QUICK
from benchmarks.etcd.script import (
    CHANGING,
    CONSTANT,
    FRAME_HEADER,
    HeaderWriter,
    Script,
    constant_timeout,
    stream_of,
    timeouts,
)
from benchmarks.etcd.servers import ETCD, OURS
from benchmarks.etcd.syncs import Syncs
from benchmarks.etcd.targets import NARROWLY, NO, TARGETS, YES, Target
from benchmarks.etcd.throughput import within
from leasehold.wire import rpc_pb2 as pb

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
    assert messages.renew_all_request([1, 300]) == b"\x0a\x03\x01\xac\x02"
    swap = pb.TxnRequest.FromString(messages.compare_and_put_request(b"k", b"old", b"new"))
    assert swap.compare[0] == pb.Compare(target=pb.Compare.VALUE, key=b"k", value=b"old")
    assert swap.success[0].request_put == pb.PutRequest(key=b"k", value=b"new")
    assert pb.PutRequest.FromString(messages.put_request(b"k", b"v", 7)).lease == 7
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


def test_calls_that_are_encoded_later_follow_those_that_were_not_sent() -> None:
    whole = Script(HeaderWriter(AUTHORITY, timeouts(Random(1))), messages.PUT, [b"body"] * 300)
    headers = HeaderWriter(AUTHORITY, timeouts(Random(1)))
    some = Script(headers, messages.PUT, [b"body"] * 120)
    left = some.after(100)
    more = Script(headers, messages.PUT, [b"body"] * 180, rest=left)
    assert (left.first, len(left), more.first, len(more)) == (100, 20, 100, 200)
    assert bytes(some.content[: some.starts[100]]) + bytes(more.content) == bytes(whole.content)
    assert [at + some.starts[100] for at in more.starts] == whole.starts[100:]
    assert more.data_bytes[-1] == 200 * len(b"\0\0\0\0\4body")


def test_a_stream_that_stays_open_has_no_timeout() -> None:
    opening = HeaderWriter(AUTHORITY, timeouts(Random(1))).next_frame(1, "/a/B", is_timed=False)
    names = [name for name, _ in Decoder().decode(opening[FRAME_HEADER:], raw=True)]
    assert b"grpc-timeout" not in names
    assert names[-1] == b"client-api-version"


def pair(etcd: float, ours: float, name: str = RATE) -> Pair:
    return Pair({ETCD: {name: etcd}, OURS: {name: ours}})


def of(cells: dict[Cell, list[Pair]]) -> Results:
    return Results("a machine", cells)


def results() -> Results:
    return of(
        {
            Cell(THROUGHPUT, "put", CONSTANT): [pair(100.0, 200.0 * k) for k in (1.0, 1.2, 1.7)],
            Cell(THROUGHPUT, "put", CHANGING): [pair(10.0 * k, 16.0 * k) for k in (1.0, 4.0, 2.0)],
            Cell(LATENCY, "put"): [
                Pair({ETCD: {P99_MS: 2.0, OFFERED: 9.0}, OURS: {P99_MS: 3.0, OFFERED: 9.0}})
            ],
            Cell(EXPIRY, "30 leases"): [pair(20.0, 0.4, LAST_S), pair(20.0, 0.6, LAST_S)],
        }
    )


def test_ratios_are_taken_pair_by_pair_so_that_a_slow_machine_is_slow_for_both() -> None:
    """The machine was four times as fast in the second pair: that must not show."""
    found = ratio(results().cells[Cell(THROUGHPUT, "put", CHANGING)], RATE)
    assert found == Spread(1.6, 1.6, 1.6)
    assert ratio([pair(1.0, 1.0), pair(1.0, 3.0), pair(1.0, 2.0)], RATE) == Spread(2.0, 1.5, 2.5)


def test_a_pair_in_which_a_server_is_missing_is_no_pair() -> None:
    half = Pair({OURS: {RATE: 5.0}})
    assert ratio([half, pair(0.0, 1.0), pair(1.0, 2.0)], RATE) == Spread(2.0, 2.0, 2.0)
    assert ratio([half], RATE) is None


def target(title: str) -> Target:
    return next(each for each in TARGETS if each.title == title)


def test_the_worse_of_constant_and_changing_headers_counts() -> None:
    assert target("Put").measured(results(), RATE) == Spread(1.6, 1.6, 1.6)
    assert target("Put").measured(results(), PER_CPU) is None


def test_where_less_is_better_the_worst_is_the_most() -> None:
    gone = target("leases that end together: until all are gone")
    assert gone.measured(results(), LAST_S) == Spread(0.025, 0.0225, 0.0275)
    alone = target("the same, ours alone")
    found = alone.measured(results(), LAST_S)
    assert found is not None
    assert (found.median, found.low, found.high) == pytest.approx((0.5, 0.45, 0.55))
    assert alone.verdict(Spread(0.5, 0.45, 0.55)) == NARROWLY
    assert alone.verdict(Spread(0.4, 0.3, 0.5)) == YES
    assert alone.verdict(Spread(0.51, 0.3, 0.6)) == NO


def test_a_target_is_reached_for_sure_only_if_the_worse_quartile_reaches_it() -> None:
    put = target("Put")
    assert put.verdict(Spread(1.5, 1.5, 2.0)) == YES
    assert put.verdict(Spread(1.6, 1.4, 2.0)) == NARROWLY
    assert put.verdict(Spread(1.4, 1.2, 9.0)) == NO


def test_everything_that_was_asked_for_has_a_target() -> None:
    bounds = {each.title: (each.bound, each.is_least) for each in TARGETS}
    assert bounds["LeaseGrant"] == (6.0, True)
    assert bounds["Put, one in flight"] == (1.0, True)
    assert bounds["RenewAll, leases, compared with KeepAlive on long streams"] == (5.0, True)
    assert bounds["Txn: compare and put"] == (1.2, True)
    assert bounds["memory for a live lease"] == (1.0, False)
    assert len(TARGETS) == 15


def test_the_tables_say_what_was_reached_and_what_could_not_be_measured() -> None:
    report = tables(
        replace(results(), missing=["memory could not be measured"]),
        [Syncs(OURS, "put", 1_000, 20, 25)],
    )
    verdict = report[0]
    assert [row[:4] for row in verdict.rows] == [
        ["Put", "at least 1.5 times", "1.60", YES],
        [verdict.rows[1][0], "at most 0.05 times", "0.03 (0.02..0.03)", YES],
        ["the same, ours alone", "at most 0.5 s", "0.50 (0.45..0.55)", NARROWLY],
        ["p99 of Put at half of etcd's peak", "at most 1 times", "1.50", NO],
    ]
    assert "memory could not be measured" in verdict.as_markdown()
    assert report[-1].rows[0][-2:] == ["25.0", "1.25"]


def test_the_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it is in the dependency group `bench`")
    path = tmp_path / "etcd.svg"
    write_plot(results(), path)
    assert "<svg" in path.read_text(encoding="utf-8")


def test_rounds_end_in_time_and_one_is_always_made() -> None:
    assert list(within(3, 10.0, iter([0.0, 5.0, 11.0]).__next__)) == [0, 1]
    assert list(within(3, -1.0, iter([0.0, 5.0]).__next__)) == [0]


def test_a_profile_is_read_by_own_time() -> None:
    assert top_functions("main;serve;parse 30\nmain;serve 60\nmain;parse 10\n") == [
        ("serve", 0.6),
        ("parse", 0.4),
    ]


TINY = replace(QUICK, pairs=1, slice_s=0.0, paced_pairs=1, paced_s=0.1, ending=20, ending_ttl_s=2)
"""A slice ends with its first answer, however long that takes."""

ENDED = ("have ended meanwhile", "requested lease not found")
"""What is told if leases have ended while the others were made, which takes a moment."""


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    """At a tiny size, against real servers, so that it cannot rot."""
    run = Run(tmp_path, TINY)
    run.measure(THROUGHPUT, ["renew-all", "txn"])
    assert run.missing == []
    run.measure(EXPIRY, [])
    if any(why in told for told in run.missing for why in ENDED):  # on a machine this slow
        run.missing.clear()
        run.scale = replace(TINY, ending_ttl_s=5 * TINY.ending_ttl_s)
        run.measure(EXPIRY, [])
    assert run.missing == []
    assert {(cell.what, cell.headers) for cell in run.cells} == {
        ("renew-all", CHANGING),
        ("txn", CONSTANT),
        ("txn", CHANGING),
        ("20 leases", ""),
    }
    for cell, pairs in run.cells.items():
        found = ratio(pairs, LAST_S if cell.part == EXPIRY else PER_CPU)
        assert found is not None
        assert found.median > 0.0


def test_another_checkout_of_ours_can_take_the_place_of_etcd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(servers.BASELINE_CHECKOUT, str(servers.ROOT))
    run = Run(tmp_path, TINY, (servers.BASELINE, servers.OURS))
    run.measure(THROUGHPUT, ["renew-all"])
    assert run.missing == []
    (throughput, load) = tables(Results("a machine", run.cells))
    assert throughput.headings[2:] == [
        *("baseline, calls/s", "ours, calls/s", "ratio"),
        *("baseline, calls per processor second", "ours, calls per processor second", "ratio"),
    ]
    assert capsys.readouterr().err.count(PER_CPU) == 2 * TINY.pairs
    assert "p50 on baseline, ms" in load.headings
    assert all(cell != "-" for row in throughput.rows for cell in row)


def test_a_server_that_does_not_start_is_missing_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_command", lambda *_: ["false"])
    run = Run(tmp_path, TINY)
    run.measure(THROUGHPUT, ["put", "range"])
    assert [what.partition(" could not")[0] for what in run.missing] == ["Put", "Range of one key"]
    assert not run.cells
