"""What `leasehold top` shows: golden lines, whatever the size of the screen."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.top_metrics import Rates, read_page
from leasehold.cli.top_reading import (
    HeldLock,
    HeldTime,
    QueueKey,
    SeenLeases,
    SeenLock,
    SeenSession,
    ServerSnapshot,
)
from leasehold.cli.top_view import document, fitted, lines, shared
from leasehold.engine.remote.leasehold_leases import HolderLease
from leasehold.engine.remote.server_version import ServerInfo
from leasehold.engine.values import LeaseInfo


def held(name: bytes, lease: int, who: str, held_time: HeldTime, waiting: int) -> HeldLock:
    return HeldLock(SeenLock(name, QueueKey(b"", 40 + lease, 1, lease), waiting), who, held_time)


def lease(number: int, remaining: float, key_count: int, holder: str = "") -> HolderLease:
    return HolderLease(LeaseInfo(number, 10.0, remaining, None, key_count), holder)


SIGHT = ServerSnapshot(
    server=ServerInfo(is_leasehold=True, version="3.5.1"),
    endpoint="127.0.0.1:2379",
    revision=12345,
    keys_total=7,
    keys_read=7,
    leases=SeenLeases([lease(1, 1.25, 5, "anna"), lease(2, 64.0, 0), lease(3, 70.0, 9)], 3),
    leases_total=3,
    locks=[
        held(b"cron/backup", 1, "anna@host 7", HeldTime(12.9, is_whole=True), 1234),
        held(b"deploy\x1b", 0x7A12, "", HeldTime(75.0, is_whole=False), 0),
    ],
    locks_total=2,
    waiting_total=1234,
    sessions=[SeenSession(1, "anna@host 7"), SeenSession(9, "")],
    sessions_total=2,
    keys_of={1: [b"a", b"b", b"c", b"d"]},
    rates={"revisions": 12.34, "requests": 1234.5, "puts": None, "renewals": 0.0},
    counted={"requests": 9, "puts": 1, "renewals": 4, "watches": 3, "connections": 2},
)


def shown(snapshot: ServerSnapshot, height: int | None = None, trouble: str = "") -> list[str]:
    return [line.text for line in lines(snapshot, height=height, trouble=trouble)]


def test_everything_is_shown() -> None:
    assert shown(SIGHT) == [
        "Leasehold (etcd 3.5.1) at 127.0.0.1:2379",
        "revision 12,345   revisions 12.3/s   requests 1,234/s   puts -/s   renewals 0.0/s",
        "keys 7   leases 3   locks 2, 1,234 waiting   sessions 2   watches 3   connections 2",
        "",
        "LOCK         HOLDER                  LEASE             HELD FOR  WAITING",
        "cron/backup  anna@host 7             0000000000000001  12s       1,234",
        "deploy\\x1b   lease 0000000000007a12  0000000000007a12  1m15s+    0",
        "",
        "LEASE             REMAINING  TTL  HOLDER  KEYS",
        "0000000000000001  1.2s       10s  anna    a, b, c and 2 more",
        "0000000000000002  1m4s       10s  -       none",
        "0000000000000003  1m10s      10s  -       9 keys",
        "",
        "SESSION           REMAINING  CLIENT",
        "0000000000000001  1.2s       anna@host 7",
        "0000000000000009  -          -",
    ]


def test_what_is_too_much_is_counted() -> None:
    many = replace(
        SIGHT,
        keys_total=1_000_000,
        keys_read=10_000,
        leases_total=12_345,
        locks_total=102,
        sessions_total=1_002,
    )
    said = shown(many)
    assert said[3] == (
        "locks were searched in 10,000 of 1,000,000 keys; "
        "use --prefix to choose which keys are read"
    )
    assert [line for line in said if line.startswith("and ")] == [
        "and 100 more",
        "and 12,342 more",
        "and 1,000 more",
    ]
    nobody_knows = shown(replace(many, leases_total=None))
    assert "and more" in nobody_knows
    assert "leases more than 10,000" in nobody_knows[2]


def test_nothing_is_shown_in_words() -> None:
    nothing = replace(
        SIGHT,
        server=ServerInfo(is_leasehold=False, version="3.5.20"),
        leases=SeenLeases([], 0),
        leases_total=0,
        locks=[],
        locks_total=0,
        sessions=[],
        sessions_total=0,
        counted={},
        rates={},
    )
    said = shown(nothing)
    assert said[:2] == ["etcd 3.5.20 at 127.0.0.1:2379", "revision 12,345   revisions -/s"]
    for words in ("no locks", "no leases", "no sessions"):
        assert words in said


def test_a_small_screen_has_some_of_each_and_how_many_more() -> None:
    assert shown(SIGHT, height=15)[3:] == [
        "",
        "LOCK         HOLDER       LEASE             HELD FOR  WAITING",
        "cron/backup  anna@host 7  0000000000000001  12s       1,234",
        "and 1 more",
        "",
        "LEASE             REMAINING  TTL  HOLDER  KEYS",
        "0000000000000001  1.2s       10s  anna    a, b, c and 2 more",
        "and 2 more",
        "",
        "SESSION           REMAINING  CLIENT",
        "0000000000000001  1.2s       anna@host 7",
        "and 1 more",
    ]


@given(st.integers(1, 60), st.booleans())
def test_no_screen_is_overfilled_and_trouble_is_seen(height: int, has_trouble: bool) -> None:
    said = shown(SIGHT, height=height, trouble="no answer" if has_trouble else "")
    assert len(said) <= height
    assert ("no answer" in said) == (has_trouble and height > 3)


@given(st.integers(-20, 200), st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_lines_are_shared_out_fairly(left: int, wants: list[int]) -> None:
    given = shared(left, wants)
    assert sum(given) <= max(0, left)
    for got, wanted in zip(given, wants, strict=True):
        assert 0 <= got <= wanted
        if got < wanted:  # nobody has much more, and nothing is left over
            assert max(given) <= got + 1
            assert sum(given) == max(0, left)


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("hello", 4, "hell"),
        ("hello", 5, "hello"),
        ("日本語", 5, "日本"),
        ("e\u0301x", 1, "e\u0301"),
    ],
)
def test_a_line_is_cut_where_the_terminal_ends(text: str, columns: int, cut: str) -> None:
    assert fitted(text, columns) == cut


def test_a_program_has_everything_with_whole_numbers() -> None:
    known = json.loads(json.dumps(document(SIGHT)))
    assert known["server"] == "leasehold"
    assert known["rates"] == {"revisions": 12.34, "requests": 1234.5, "puts": None, "renewals": 0}
    assert known["keys"] == {"total": 7, "read": 7}
    assert known["leases"]["next"][0] == {
        "id": "0000000000000001",
        "ttl": 10,
        "remaining": 1.25,
        "holder": "anna",
        "key_count": 5,
        "keys": [{"key": "a"}, {"key": "b"}, {"key": "c"}],
    }
    assert known["locks"]["first"][1] == {
        "name": "deploy\x1b",
        "holder": None,
        "lease": "0000000000007a12",
        "token": 40 + 0x7A12,
        "held": 75,
        "is_held_longer": True,
        "waiting": 0,
    }
    assert known["sessions"]["first"] == [
        {"lease": "0000000000000001", "who": "anna@host 7", "remaining": 1.25},
        {"lease": "0000000000000009", "who": None, "remaining": None},
    ]


# Rates.


PAGE = """\
# HELP leasehold_leases SeenLeases that are alive.
leasehold_leases 5
etcd_debugging_lease_renewed_total 7e+3
grpc_server_started_total{grpc_type="unary",grpc_service="etcdserverpb.KV",grpc_method="Put"} 3
grpc_server_started_total{grpc_type="unary",grpc_service="etcdserverpb.KV",grpc_method="Range"} 4
leasehold_connections nonsense
"""


def test_a_page_of_metrics_is_read() -> None:
    assert read_page(PAGE) == {"leases": 5, "renewals": 7000, "requests": 7, "puts": 3}


@given(st.text())
def test_no_page_is_too_strange(text: str) -> None:
    read_page(text)


def test_a_rate_is_the_difference_of_two_looks() -> None:
    rates = Rates()
    assert set(rates.update({"revisions": 5, "requests": 7}, 100.0).values()) == {None}
    known = rates.update({"revisions": 15, "requests": 7, "puts": 1}, 104.0)
    assert known == {"revisions": 2.5, "requests": 0, "puts": None, "renewals": None}
    known = rates.update({"revisions": 1}, 105.0)  # the server has begun anew
    assert known["revisions"] is None
    assert rates.update({"revisions": 3}, 106.0)["revisions"] == 2
