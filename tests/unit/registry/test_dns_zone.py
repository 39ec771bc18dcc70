"""DNS answers: names, types, sizes, and messages that are refused. No sockets."""

import asyncio
import struct
from collections.abc import Sequence
from random import Random
from typing import Any

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import TooBusy
from leasehold.registry import dns_zone
from leasehold.registry.dns_zone import DnsZone, host_port_of
from leasehold.registry.named_items import named_item
from leasehold.registry.state import Health, Item


def zone_of(items: Sequence[tuple[Item, str, str | None]], **options: Any) -> DnsZone:
    async def lookup(name: str, tag: str | None) -> list[Item]:
        return [item for item, *found in items if name == found[0] and tag in {None, found[1]}]

    return DnsZone(lookup, random=Random(1), **options)


def items_of(*endpoints: str, tag: str | None = None, **options: Any) -> list[Any]:
    return [(named_item("web", each, **options), "web", tag) for each in endpoints]


def wire_answer(zone: DnsZone, query: bytes, limit_bytes: int | None = None) -> bytes | None:
    return asyncio.run(zone.answer(query, limit_bytes))


def ask(
    zone: DnsZone,
    name: str = "web.service.leasehold.",
    rdtype: str = "A",
    *,
    limit_bytes: int | None = None,
    **options: Any,
) -> dns.message.Message:
    query = dns.message.make_query(name, rdtype, **options)
    wire = wire_answer(zone, query.to_wire(), limit_bytes)
    assert wire is not None
    answer = dns.message.from_wire(wire)
    assert query.is_response(answer)
    assert not answer.flags & dns.flags.RA
    return answer


def texts(section: Sequence[dns.rrset.RRset]) -> list[str]:
    """The records of a section, each as its name, type and data."""
    return sorted(f"{rrset.name} {rrset.rdtype.name} {data}" for rrset in section for data in rrset)


def data_of(answer: dns.message.Message) -> list[str]:
    return sorted(str(data) for rrset in answer.answer for data in rrset)


def is_negative(answer: dns.message.Message, rcode: dns.rcode.Rcode) -> bool:
    """Whether there is no answer, and the SOA record of the domain."""
    (authority,) = answer.authority
    assert str(authority.name) == "leasehold."
    assert authority.rdtype.name == "SOA"
    assert authority.ttl == 0
    return answer.rcode() == rcode and not answer.answer and bool(answer.flags & dns.flags.AA)


WEB = zone_of(items_of("10.0.0.1:80", "http://10.0.0.2:8080/x", "[fd00::1]:80"))


# Names and types.


def test_addresses_of_services_by_name() -> None:
    answer = ask(WEB)
    assert data_of(answer) == ["10.0.0.1", "10.0.0.2"]
    assert answer.flags & dns.flags.AA
    assert data_of(ask(WEB, rdtype="AAAA")) == ["fd00::1"]


def test_a_ttl_is_0() -> None:
    for rdtype in ("A", "AAAA", "SRV"):
        answer = ask(WEB, rdtype=rdtype)
        assert {rrset.ttl for rrset in (*answer.answer, *answer.additional)} == {0}


def test_services_with_a_tag() -> None:
    zone = zone_of(items_of("10.0.0.1:80", tag="v1") + items_of("10.0.0.2:80", tag="v2"))
    assert data_of(ask(zone, "v2.web.service.leasehold.")) == ["10.0.0.2"]
    assert data_of(ask(zone)) == ["10.0.0.1", "10.0.0.2"]
    assert is_negative(ask(zone, "v3.web.service.leasehold."), dns.rcode.NXDOMAIN)


def test_srv_records_name_host_and_port_and_have_the_addresses_with_them() -> None:
    answer = ask(WEB, rdtype="SRV")
    assert data_of(answer) == [
        "1 1 80 0a000001.addr.leasehold.",
        "1 1 80 fd000000000000000000000000000001.addr.leasehold.",
        "1 1 8080 0a000002.addr.leasehold.",
    ]
    assert texts(answer.additional) == [
        "0a000001.addr.leasehold. A 10.0.0.1",
        "0a000002.addr.leasehold. A 10.0.0.2",
        "fd000000000000000000000000000001.addr.leasehold. AAAA fd00::1",
    ]


def test_the_target_of_an_srv_record_has_an_address() -> None:
    assert data_of(ask(WEB, "0A000002.addr.leasehold.")) == ["10.0.0.2"]
    target = "fd000000000000000000000000000001.addr.leasehold."
    assert data_of(ask(WEB, target, "AAAA")) == ["fd00::1"]
    assert is_negative(ask(WEB, target, "A"), dns.rcode.NOERROR)
    for name in ("xx", "0a00", "0a0000020", "x.0a000002", "0a-00002", "0a 0000 2"):
        assert is_negative(ask(WEB, f"{name}.addr.leasehold."), dns.rcode.NXDOMAIN)


def test_one_address_is_answered_once_and_each_port_once() -> None:
    zone = zone_of(items_of("10.0.0.1:80", "10.0.0.1:81", "tcp://10.0.0.1:80"))
    assert data_of(ask(zone)) == ["10.0.0.1"]
    answer = ask(zone, rdtype="SRV")
    assert len(data_of(answer)) == 2
    assert texts(answer.additional) == ["0a000001.addr.leasehold. A 10.0.0.1"]


def test_txt_records_have_the_metadata() -> None:
    metadata = {"zone": "a b", "weight": 3, "long": "x" * 300, "ä": "ö"}
    zone = zone_of(items_of("10.0.0.1:80", metadata=metadata) + items_of("10.0.0.2:80"))
    answer = ask(zone, rdtype="TXT")
    ((record,),) = answer.answer
    assert set(record.strings) == {b"zone=a b", b"weight=3", "ä=ö".encode()}


def test_metadata_that_is_too_large_is_cut() -> None:
    zone = zone_of(items_of("h:1", metadata={f"key{number}": "x" * 200 for number in range(1000)}))
    answer = ask(zone, rdtype="TXT", limit_bytes=65_535)
    assert len(answer.answer) == 1
    assert 4000 < len(answer.to_wire()) < 4500


def test_a_host_name_is_the_target_of_an_srv_record_and_has_no_address() -> None:
    zone = zone_of(items_of("Host.example.org:80", "10.0.0.1:80"))
    assert data_of(ask(zone)) == ["10.0.0.1"]
    answer = ask(zone, rdtype="SRV")
    assert data_of(answer) == ["1 1 80 0a000001.addr.leasehold.", "1 1 80 host.example.org."]
    assert texts(answer.additional) == ["0a000001.addr.leasehold. A 10.0.0.1"]


def test_if_there_are_only_host_names_one_is_answered_as_a_cname() -> None:
    zone = zone_of(items_of("a.example.org:80", "b.example.org:80"))
    for rdtype in ("A", "AAAA", "CNAME"):
        (rrset,) = ask(zone, rdtype=rdtype).answer
        assert rrset.rdtype.name == "CNAME"
        assert [str(data) for data in rrset] in (["a.example.org."], ["b.example.org."])
    zone = zone_of(items_of("a.example.org:80", "[::1]:80"))
    assert is_negative(ask(zone), dns.rcode.NOERROR)


def test_only_passing_services_are_answered() -> None:
    zone = zone_of(
        items_of("10.0.0.1:80")
        + items_of("10.0.0.2:80", health=Health.FAILING)
        + items_of("10.0.0.3:80", health=Health.MAINTENANCE)
    )
    assert data_of(ask(zone)) == ["10.0.0.1"]
    assert len(data_of(ask(zone, rdtype="SRV"))) == 1


def test_a_known_name_without_a_passing_service_has_no_answer() -> None:
    zone = zone_of(items_of("10.0.0.2:80", health=Health.FAILING))
    assert is_negative(ask(zone), dns.rcode.NOERROR)


def test_an_unknown_name_does_not_exist() -> None:
    for name in ("db.service", "x", "web", "service.web", "a.b.web.service", "web.node", "*"):
        assert is_negative(ask(WEB, f"{name}.leasehold."), dns.rcode.NXDOMAIN)
    assert is_negative(ask(WEB, "\\255.service.leasehold."), dns.rcode.NXDOMAIN)


@pytest.mark.parametrize("rdtype", ["TXT", "MX", "CNAME", "NS", "TYPE65280", "SOA", "HTTPS"])
def test_a_known_name_without_a_record_of_that_type_has_no_answer(rdtype: str) -> None:
    assert is_negative(ask(WEB, rdtype=rdtype), dns.rcode.NOERROR)


@pytest.mark.parametrize("name", ["leasehold.", "service.leasehold.", "addr.leasehold."])
def test_a_name_above_others_exists(name: str) -> None:
    assert is_negative(ask(WEB, name), dns.rcode.NOERROR)


def test_the_domain_has_its_soa_record() -> None:
    (soa,) = data_of(ask(WEB, "leasehold.", "SOA"))
    assert soa == "ns.leasehold. hostmaster.leasehold. 1 3600 600 86400 0"


@pytest.mark.parametrize(
    ("name", "rdtype", "options"),
    [
        ("web.service.consul.", "A", {}),
        (".", "A", {}),
        ("leasehold.org.", "A", {}),
        ("xleasehold.", "A", {}),
        ("web.service.leasehold.", "ANY", {}),
        ("leasehold.", "AXFR", {}),
        ("leasehold.", "IXFR", {}),
        ("web.service.leasehold.", "A", {"rdclass": "CH"}),
        ("web.service.leasehold.", "A", {"rdclass": "ANY"}),
    ],
)
def test_other_domains_classes_any_and_transfers_are_refused(
    name: str, rdtype: str, options: dict[str, Any]
) -> None:
    answer = ask(WEB, name, rdtype, **options)
    assert answer.rcode() == dns.rcode.REFUSED
    assert answer.answer == answer.authority == []
    assert not answer.flags & dns.flags.AA


def test_names_are_compared_without_case_and_the_question_keeps_its_case() -> None:
    answer = ask(WEB, "wEb.SERVICE.LeaseHold.")
    assert data_of(answer) == ["10.0.0.1", "10.0.0.2"]
    assert answer.question[0].name.labels[0] == b"wEb"


def test_another_domain() -> None:
    zone = zone_of(items_of("10.0.0.1:80"), domain="Discovery.Example.Org.")
    answer = ask(zone, "web.service.discovery.example.org.", "SRV")
    assert data_of(answer) == ["1 1 80 0a000001.addr.discovery.example.org."]
    assert ask(zone).rcode() == dns.rcode.REFUSED


@pytest.mark.parametrize("domain", ["", ".", "a..b", "x" * 64, ".".join(["x" * 50] * 4), "ä"])
def test_a_domain_that_is_not_a_name_or_too_long_is_refused(domain: str) -> None:
    with pytest.raises(ValueError, match="domain must be a DNS name"):
        zone_of([], domain=domain)


def test_the_order_is_random() -> None:
    zone = zone_of(items_of(*(f"10.0.0.{number}:80" for number in range(20))))
    orders = {tuple(str(data) for data in ask(zone).answer[0]) for _ in range(5)}
    assert len(orders) == 5


def test_recursion_is_not_offered_and_the_wish_for_it_is_repeated() -> None:
    assert ask(WEB).flags & dns.flags.RD
    assert not ask(WEB, flags=0).flags & dns.flags.RD


# Endpoints.


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("10.0.0.1", "10.0.0.1", None),
        ("[::1]:80", "::1", 80),
        ("::1", "::1", None),
        ("http://10.0.0.1", "10.0.0.1", 80),
        ("https://[::1]/path?x", "::1", 443),
        ("https://user@10.0.0.1:1/", "10.0.0.1", 1),
        ("grpc://10.0.0.1:50051", "10.0.0.1", 50051),
        ("Host:80", (b"host", b""), 80),
        ("host.example.org.:80", (b"host", b"example", b"org", b""), 80),
    ],
)
def test_the_host_and_port_of_an_endpoint(endpoint: str, host: Any, port: int | None) -> None:
    found = host_port_of(endpoint)
    assert found is not None
    assert (found.host if isinstance(host, tuple) else str(found.host), found.port) == (host, port)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "unix:/run/x",
        "unix:///run/x",
        "http://",
        "http://[x]:1",
        ":80",
        "h:x",
        "h:99999",
        "[::1",
        "ä:80",
        "a..b:80",
        "x" * 64 + ":80",
        ".".join(["x" * 60] * 5) + ":80",
    ],
)
def test_an_endpoint_without_a_host_has_no_records(endpoint: str) -> None:
    assert host_port_of(endpoint) is None
    if endpoint:
        zone = zone_of(items_of(endpoint))
        for rdtype in ("A", "SRV"):
            assert is_negative(ask(zone, rdtype=rdtype), dns.rcode.NOERROR)


def test_an_endpoint_without_a_port_has_no_srv_record() -> None:
    zone = zone_of(items_of("10.0.0.1"))
    assert data_of(ask(zone)) == ["10.0.0.1"]
    assert is_negative(ask(zone, rdtype="SRV"), dns.rcode.NOERROR)


# Sizes.

MANY = zone_of(items_of(*(f"10.0.{number // 250}.{number % 250}:80" for number in range(1000))))


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 512),
        ({"use_edns": 0, "payload": 100}, 512),
        ({"use_edns": 0, "payload": 800}, 800),
        ({"use_edns": 0, "payload": 1232}, 1232),
        ({"use_edns": 0, "payload": 65_000}, 1232),
    ],
)
@pytest.mark.parametrize("rdtype", ["A", "SRV"])
def test_an_answer_over_udp_that_does_not_fit_is_cut(
    rdtype: str, options: dict[str, Any], most: int
) -> None:
    query = dns.message.make_query("web.service.leasehold.", rdtype, **options)
    wire = wire_answer(MANY, query.to_wire())
    assert wire is not None
    assert most - 50 < len(wire) <= most
    answer = dns.message.from_wire(wire)
    assert answer.flags & dns.flags.TC
    assert len(answer.answer[0]) >= 8


def test_an_answer_that_fits_is_not_marked_as_cut() -> None:
    assert not ask(WEB).flags & dns.flags.TC
    zone = zone_of(items_of(*(f"10.0.0.{number}:80" for number in range(29))))
    answer = ask(zone)
    assert len(data_of(answer)) == 29
    assert not answer.flags & dns.flags.TC


def test_additional_records_are_left_out_without_a_mark() -> None:
    zone = zone_of(items_of(*(f"10.0.0.{number}:80" for number in range(9))))
    answer = ask(zone, rdtype="SRV")
    assert len(data_of(answer)) == 9
    assert 0 < len(answer.additional) < 9
    assert not answer.flags & dns.flags.TC


@pytest.mark.parametrize("rdtype", ["A", "SRV"])
def test_over_tcp_everything_is_answered(rdtype: str) -> None:
    answer = ask(MANY, rdtype=rdtype, limit_bytes=65_535)
    assert len(data_of(answer)) == 1000
    assert not answer.flags & dns.flags.TC
    if rdtype == "SRV":  # some of these names lie beyond what a pointer can reach
        targets = {str(data.target) for data in answer.answer[0]}
        assert {str(rrset.name) for rrset in answer.additional} <= targets


def test_services_beyond_the_largest_answer_are_chosen_at_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns_zone, "MAX_ANSWERS", 100)
    assert len(data_of(ask(MANY, limit_bytes=65_535))) == 100


def test_an_answer_over_tcp_never_exceeds_its_limit() -> None:
    hosts = (f"{'x' * 60}.{number}.example.org:80" for number in range(2000))
    wire = wire_answer(
        zone_of(items_of(*hosts)),
        dns.message.make_query("web.service.leasehold.", "SRV").to_wire(),
        65_535,
    )
    assert wire is not None
    assert 65_000 < len(wire) <= 65_535
    dns.message.from_wire(wire)


# EDNS.


def test_edns_is_answered_with_the_largest_answer_of_this_server() -> None:
    answer = ask(WEB, use_edns=0, payload=4096, options=[dns.edns.GenericOption("NSID", b"x")])
    assert (answer.edns, answer.payload, answer.options) == (0, 1232, ())
    assert ask(WEB).edns == -1


def test_a_later_version_of_edns_is_refused() -> None:
    answer = ask(WEB, use_edns=1)
    assert answer.rcode() == dns.rcode.BADVERS
    assert not answer.answer


# Messages that are refused.


def test_an_answer_or_a_fragment_is_dropped() -> None:
    response = dns.message.make_response(dns.message.make_query("web.service.leasehold.", "A"))
    for wire in (response.to_wire(), b"", b"\0" * 11):
        assert wire_answer(WEB, wire) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\0\0\0\0\0\0",  # no question
        b"\0\1\0\0\0\0\0\0",  # a question is missing
        b"\0\1\0\0\0\0\0\0\3web",  # a name without an end
        b"\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1",  # a pointer to itself
        b"\0\1\0\0\0\0\0\0\x80\0\0\1\0\1",  # an unknown form of label
        b"\0\1\0\0\0\0\0\0\0\0\1\0\1x",  # bytes after the end
        b"\0\2\0\0\0\0\0\0\1a\0\0\1\0\1\1b\0\0\1\0\1",  # two questions
    ],
)
def test_a_malformed_query_is_a_format_error(body: bytes) -> None:
    wire = wire_answer(WEB, b"\x12\x34\x01\0" + body)
    assert wire == struct.pack("!6H", 0x1234, 0x8101, 0, 0, 0, 0)


@pytest.mark.parametrize("opcode", [1, 2, 4, 5, 6, 15])
def test_another_operation_is_not_implemented(opcode: int) -> None:
    query = dns.message.make_query("web.service.leasehold.", "A")
    query.set_opcode(dns.opcode.Opcode(opcode))
    wire = wire_answer(WEB, query.to_wire())
    assert wire is not None
    assert len(wire) == 12
    flags = struct.unpack_from("!H", wire, 2)[0]
    assert (flags >> 11 & 15, flags & 15) == (opcode, dns.rcode.NOTIMP)


class _Broken(Exception):
    pass


@pytest.mark.parametrize("error", [TooBusy("loading"), _Broken("x"), TimeoutError()])
def test_while_the_registry_cannot_answer_the_server_fails(error: Exception) -> None:
    async def lookup(_name: str, _tag: str | None) -> list[Item]:
        raise error

    answer = ask(DnsZone(lookup))
    assert answer.rcode() == dns.rcode.SERVFAIL


def test_a_lookup_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lookup(_name: str, _tag: str | None) -> list[Item]:
        await asyncio.get_running_loop().create_future()
        return []

    monkeypatch.setattr(dns_zone, "LOOKUP_S", 0.01)
    assert ask(DnsZone(lookup)).rcode() == dns.rcode.SERVFAIL


# Random messages.


def test_answers_are_counted_by_response_code() -> None:
    zone = zone_of(items_of(*(f"10.0.{number}.1:80" for number in range(100))))
    make = dns.message.make_query
    ask(zone, rdtype="SRV")  # it does not fit
    ask(zone, rdtype="SRV", limit_bytes=65_535)
    ask(zone, "other.service.leasehold.")
    ask(zone, "example.org.")
    wire_answer(zone, make("web.service.leasehold.", "A", use_edns=1).to_wire())
    wire_answer(zone, make("web.service.leasehold.", "A").to_wire()[:20])
    wire_answer(zone, b"\0\1\x10\0" + bytes(8))
    wire_answer(zone, b"too short")
    assert {code: count for code, count in zone.counts.answers.items() if count} == {
        "NOERROR": 2,
        "NXDOMAIN": 1,
        "REFUSED": 1,
        "BADVERS": 1,
        "FORMERR": 1,
        "NOTIMP": 1,
    }
    assert zone.counts.truncated == 1


def test_a_query_that_the_registry_cannot_answer_is_counted_as_an_error() -> None:
    async def fail(_name: str, _tag: str | None) -> list[Item]:
        raise TimeoutError

    zone = DnsZone(fail)
    ask(zone)
    assert zone.counts.answers["SERVFAIL"] == 1


QUERIES = [
    dns.message.make_query(name, rdtype, use_edns=edns, id=1).to_wire()
    for name in ("web.service.leasehold.", "0a000001.addr.leasehold.", "x.org.")
    for rdtype in ("A", "SRV", "ANY")
    for edns in (0, False)
]


def check_any_answer(query: bytes) -> None:
    wire = wire_answer(MANY, query)
    if wire is not None:
        assert 12 <= len(wire) <= 1232
        assert wire[:2] == query[:2]
        assert wire[2] & 0x80
        try:
            dns.message.from_wire(wire)
        except (dns.exception.DNSException, ValueError):
            # The question was repeated; whether its type is known does not matter.
            assert wire[3] & 15


@given(st.binary(max_size=100))
def test_random_bytes_are_answered_or_dropped(data: bytes) -> None:
    check_any_answer(data)
    check_any_answer(b"\0\1\1\0\0\1\0\0\0\0\0\0" + data)


@given(
    st.sampled_from(QUERIES),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    st.integers(0, 200),
)
def test_changed_queries_are_answered_or_dropped(
    query: bytes, changes: list[tuple[int, int]], end: int
) -> None:
    changed = bytearray(query)
    for position, value in changes:
        changed[position % len(changed)] = value
    check_any_answer(bytes(changed[: end or None]))
