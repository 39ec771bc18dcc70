"""Which requests of web browsers are answered: `Host`, `Origin`, `Sec-Fetch-Site`, and CORS."""

from http import HTTPStatus

import pytest

from leasehold.basics.addresses import TcpAddress, UnixAddress
from leasehold.http1.authority import parse_authority, parse_origin
from leasehold.server.gateway.web_access import MAX_KNOWN_HOSTS, MAX_SHOWN_BYTES, WebAccess

LOOPBACK = TcpAddress("127.0.0.1", 2379)
LOOPBACK_6 = TcpAddress("::1", 2379)
EVERYWHERE = TcpAddress("0.0.0.0", 2379)  # noqa: S104
SOCKET = UnixAddress("/run/x.sock")
OK = None
FOREIGN = HTTPStatus.FORBIDDEN
MISDIRECTED = HTTPStatus.MISDIRECTED_REQUEST
HERE = "127.0.0.1:2379"
APP = "https://app.example"


def access(
    *given: TcpAddress | UnixAddress,
    cors: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    is_tls: bool = False,
) -> WebAccess:
    made = WebAccess(cors, hosts)
    made.listens_on(given or (LOOPBACK,), given or (LOOPBACK,), is_tls=is_tls)
    return made


def status(made: WebAccess, **fields: str | list[str]) -> HTTPStatus | None:
    """Judge a request; a list stands for a field that is repeated."""
    pairs = [
        (name.replace("_", "-").encode(), value.encode())
        for name, values in fields.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    refusal, _ = made.judge(pairs)
    return None if refusal is None else refusal.status


def cors_of(made: WebAccess, **fields: str) -> dict[bytes, bytes]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return {name.lower(): value for name, value in made.judge(pairs).fields}


# Without a browser.


@pytest.mark.parametrize("host", [HERE, "127.0.0.1", "localhost:2379", "[::1]:2379", ""])
def test_programs_that_send_neither_origin_nor_fetch_metadata_have_access(host: str) -> None:
    made = access()
    assert status(made, host=host, content_type="application/x-www-form-urlencoded") is OK
    assert cors_of(made, host=host) == {}


def test_a_request_without_host_has_access() -> None:
    assert status(access()) is OK  # HTTP/1.0: no browser sends it


# Pages of other sites.


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://localhost:2379",  # another origin than 127.0.0.1
        "http://127.0.0.1",
        "http://127.0.0.1:80",
        "http://127.0.0.1:2380",
        "http://127.0.0.1:2379.evil.example",
        "http://127.0.0.1:2379@evil.example",
        "http://127.0.0.1:2379/",
        "127.0.0.1:2379",
        "http://127.0.0.1:2379 https://evil.example",
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", ""])
def test_an_origin_that_is_not_listed_is_refused(origin: str, content_type: str) -> None:
    assert status(access(), host=HERE, origin=origin, content_type=content_type) is FOREIGN


def test_octets_that_are_not_ascii_are_refused() -> None:
    made = access()
    assert status(made, host=HERE, origin="http://127.0.0.1:2379\xff") is FOREIGN
    assert status(made, host="löcalhost") is MISDIRECTED


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "other", "same-origin, none"])
def test_fetch_metadata_of_another_site_is_refused(site: str) -> None:
    assert status(access(), host=HERE, sec_fetch_site=site) is FOREIGN


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_typed_address_and_our_own_pages_have_access(site: str) -> None:
    assert status(access(), host=HERE, sec_fetch_site=site) is OK


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (HERE, f"http://{HERE}"),
        (HERE, f"HTTP://{HERE}"),
        ("LocalHost:2379", "http://localhost:2379"),
        ("[::1]:2379", "http://[::1]:2379"),
        ("[0:0::1]:2379", "http://[::1]:2379"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("127.0.0.1:80", "http://127.0.0.1"),
    ],
)
def test_a_page_that_this_server_has_served_has_access(host: str, origin: str) -> None:
    made = access()
    assert status(made, host=host, origin=origin, sec_fetch_site="same-origin") is OK
    assert cors_of(made, host=host, origin=origin) == {}


@pytest.mark.parametrize("host", [HERE, "localhost", "localhost:443"])
def test_the_scheme_is_part_of_an_origin(host: str) -> None:
    """A page of the other scheme may have been served by another program."""
    http, https = f"http://{host}", f"https://{host}"
    if host.endswith(":443"):
        https = "https://localhost"  # 443 is the default port of https, and not of http
    assert status(access(), host=host, origin=http) is OK
    assert status(access(), host=host, origin=https) is FOREIGN
    assert status(access(is_tls=True), host=host, origin=https) is OK
    assert status(access(is_tls=True), host=host, origin=http) is FOREIGN
    assert status(access(), host=host, origin=f"ftp://{host}") is FOREIGN


def test_a_server_with_and_without_tls_has_two_origins() -> None:
    made = access(is_tls=True)
    made.listens_on([LOOPBACK_6], [LOOPBACK_6], is_tls=False)
    assert status(made, host=HERE, origin=f"http://{HERE}") is OK
    assert status(made, host=HERE, origin=f"https://{HERE}") is OK


def test_behind_a_unix_socket_either_scheme_is_that_of_a_proxy() -> None:
    made = access(SOCKET)
    assert status(made, host="localhost", origin="http://localhost") is OK
    assert status(made, host="localhost", origin="https://localhost") is OK
    assert status(made, host="localhost", origin="ftp://localhost") is FOREIGN


@pytest.mark.parametrize(
    ("host", "origin"),
    [("localhost:0", "http://localhost"), ("localhost", "http://localhost:0")],
)
def test_port_0_is_not_the_default_port(host: str, origin: str) -> None:
    assert status(access(), host=host, origin=origin) is FOREIGN
    assert parse_origin("http://a:0") != parse_origin("http://a")
    assert str(parse_origin("http://a:0")) == "http://a:0"


def test_origin_and_fetch_metadata_must_both_be_right() -> None:
    own = f"http://{HERE}"
    assert status(access(), host=HERE, origin=own, sec_fetch_site="cross-site") is FOREIGN
    assert status(access(), host=HERE, origin="null", sec_fetch_site="same-origin") is FOREIGN


def test_repeated_fields_are_not_a_way_in() -> None:
    made, own = access(cors=(APP,)), f"http://{HERE}"
    assert status(made, host=HERE, origin=[own, "https://evil.example"]) is FOREIGN
    assert status(made, host=HERE, origin=[APP, APP]) is FOREIGN
    assert status(made, host=HERE, sec_fetch_site=["none", "cross-site"]) is FOREIGN
    assert status(made, host=[HERE, "evil.example"]) is MISDIRECTED


# DNS rebinding.


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:2379",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example.",
        "user@127.0.0.1",
        "127.0.0.1:2379:2379",
        "2130706433",
        "[::1",
        "[evil.example]",
    ],
)
def test_an_unknown_host_is_refused_where_all_addresses_are_loopback(host: str) -> None:
    assert status(access(LOOPBACK, LOOPBACK_6), host=host) is MISDIRECTED
    assert status(access(LOOPBACK, SOCKET), host=host) is MISDIRECTED


@pytest.mark.parametrize(
    "host", ["LOCALHOST", "localhost.", "localhost.:2379", "127.0.0.1.", "[::1]", "10.1.2.3:99"]
)
def test_ip_addresses_and_localhost_pass(host: str) -> None:
    assert status(access(), host=host) is OK
    assert status(access(hosts=("other.example",)), host=host) is OK


def test_accepted_hosts_are_remembered_up_to_a_limit_and_refused_ones_never() -> None:
    made = access()
    for number in range(2 * MAX_KNOWN_HOSTS):
        for _ in range(2):
            assert status(made, host=f"127.0.0.1:{number + 1}") is OK
            assert status(made, host=f"evil.example:{number + 1}") is MISDIRECTED
    assert len(made._known_hosts) == MAX_KNOWN_HOSTS
    assert not any(b"evil" in host for host in made._known_hosts)


def test_names_in_listen_pass() -> None:
    made = WebAccess()
    given = [TcpAddress("Box.example", 2379), TcpAddress("bücher.example", 1)]
    made.listens_on(given, [LOOPBACK], is_tls=False)
    assert status(made, host="box.EXAMPLE.:2379") is OK
    assert status(made, host="xn--bcher-kva.example") is OK
    assert status(made, host="evil.example") is MISDIRECTED


def test_addresses_with_a_scope_and_later_addresses_do_no_harm() -> None:
    made = access(TcpAddress("localhost", 1))
    made.listens_on([TcpAddress("fe80::1%lo", 1)], [LOOPBACK], is_tls=False)
    assert status(made, host="evil.example") is MISDIRECTED


def test_hosts_are_not_checked_elsewhere_unless_some_are_listed() -> None:
    assert status(access(EVERYWHERE), host="db.example") is OK
    assert status(access(LOOPBACK, EVERYWHERE), host="db.example") is OK
    assert status(access(SOCKET), host="anything") is OK
    assert status(access(LOOPBACK, is_tls=True), host="db.example") is OK
    listed = access(EVERYWHERE, is_tls=True, hosts=("DB.example.",))
    assert status(listed, host="db.example:2379") is OK
    assert status(listed, host="evil.example") is MISDIRECTED


def test_a_star_turns_the_check_of_hosts_off() -> None:
    assert status(access(hosts=("*",)), host="evil.example") is OK
    assert status(access(hosts=("*", "a.example")), host="evil.example") is OK


def test_where_hosts_are_not_checked_a_rebound_page_is_still_refused() -> None:
    """Its host is that of its origin, and is one that another site can have."""
    rebound = {"host": "evil.example:2379", "origin": "http://evil.example:2379"}
    assert status(access(EVERYWHERE), **rebound) is FOREIGN
    assert status(access(EVERYWHERE), host="10.1.2.3:2379", origin="http://10.1.2.3:2379") is OK


# Listed origins.


def test_a_listed_origin_has_access_and_is_told_so() -> None:
    made = access(cors=(APP, "http://[::1]:8000"))
    asked = {"host": HERE, "origin": APP, "sec_fetch_site": "cross-site"}
    assert status(made, **asked) is OK
    assert cors_of(made, **asked) == {
        b"access-control-allow-headers": b"accept, content-type, authorization",
        b"access-control-allow-methods": b"POST, GET, OPTIONS, PUT, DELETE",
        b"access-control-allow-origin": APP.encode(),
        b"vary": b"Origin",
    }
    for same in ("https://app.example:443", "HTTPS://App.Example", "https://app.example."):
        assert (
            cors_of(made, host=HERE, origin=same)[b"access-control-allow-origin"] == same.encode()
        )
    assert status(made, host=HERE, origin="http://[0::1]:8000") is OK
    assert status(made, host=HERE) is OK


@pytest.mark.parametrize(
    "origin", ["http://app.example", "https://app.example:444", "https://b.app.example", "null"]
)
def test_similar_origins_are_refused(origin: str) -> None:
    made = access(cors=(APP,))
    assert status(made, host=HERE, origin=origin) is FOREIGN
    assert cors_of(made, host=HERE, origin=origin) == {b"vary": b"Origin"}


def test_a_listed_origin_needs_a_known_host() -> None:
    assert status(access(cors=(APP,)), host="evil.example", origin=APP) is MISDIRECTED
    assert cors_of(access(cors=("*",)), host="evil.example", origin=APP) == {}


def test_a_star_allows_every_origin_as_etcd_does() -> None:
    made = access(cors=("*",))
    assert status(made, host=HERE, origin="null", sec_fetch_site="cross-site") is OK
    assert status(made, host=HERE, sec_fetch_site="cross-site") is OK
    assert cors_of(made, host=HERE)[b"access-control-allow-origin"] == b"*"


def test_a_refusal_repeats_little_of_what_was_sent() -> None:
    refusal, _ = access().judge([(b"origin", b"x" * 5000), (b"host", HERE.encode())])
    assert refusal is not None
    assert refusal.body.count(b"x") <= MAX_SHOWN_BYTES + 10


@pytest.mark.parametrize("text", ["null", "*", "https//a", "https://", "1://a", "https://a/b"])
def test_what_is_not_an_origin(text: str) -> None:
    with pytest.raises(ValueError, match=r"origin|HOST"):
        parse_origin(text)


@pytest.mark.parametrize("text", ["a b", "a:65536", "a@b", "a/b", "[::1]x", "[1.2.3.4]", "a:b"])
def test_what_is_not_an_authority(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST|1\.2\.3\.4"):
        parse_authority(text)
