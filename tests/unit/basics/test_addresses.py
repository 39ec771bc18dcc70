"""How addresses are read and written, and what is said about those that are none."""

import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.basics.addresses import (
    MAX_PORT,
    MAX_UNIX_PATH_BYTES,
    Address,
    TcpAddress,
    UnixAddress,
    parse_address,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:2379", TcpAddress("127.0.0.1", 2379)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("my-host.example.org:65535", TcpAddress("my-host.example.org", 65535)),
        ("bücher.example:1", TcpAddress("bücher.example", 1)),
        ("[::1]:2379", TcpAddress("::1", 2379)),
        ("[fe80::1%eth0]:7", TcpAddress("fe80::1%eth0", 7)),
        ("http://127.0.0.1:2379", TcpAddress("127.0.0.1", 2379, is_tls=False)),
        ("https://localhost:2379", TcpAddress("localhost", 2379, is_tls=True)),
        ("HTTPS://[::1]:2379/", TcpAddress("::1", 2379, is_tls=True)),
        ("unix:/run/leasehold.sock", UnixAddress("/run/leasehold.sock")),
        ("unix:leasehold.sock", UnixAddress("leasehold.sock")),
        ("unix:a directory/it:1", UnixAddress("a directory/it:1")),
        ("unix:///run/leasehold.sock", UnixAddress("/run/leasehold.sock")),
    ],
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    ("text", "is_tls"),
    [("a:1", None), ("http://a:1", False), ("https://a:1", True), ("unix:a", None)],
)
def test_only_a_scheme_says_whether_there_is_tls(text: str, is_tls: bool | None) -> None:
    assert parse_address(text).is_tls is is_tls


@pytest.mark.parametrize("text", ["localhost", "[::1]", "http://localhost", "https://[::1]/"])
def test_a_port_that_is_missing_is_the_default_one(text: str) -> None:
    address = parse_address(text, 2379)
    assert isinstance(address, TcpAddress)
    assert address.port == 2379
    with pytest.raises(ValueError, match="no port"):
        parse_address(text)


def test_a_port_that_is_there_is_not_the_default_one() -> None:
    assert parse_address("localhost:1", 2379) == TcpAddress("localhost", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no port: write HOST:PORT, such as 127.0.0.1:2379"),
        ("2379", "no host"),
        ("http://", "no port"),
        (":2379", "the host is empty"),
        ("http://:2379", "the host is empty"),
        ("host:", "a port of 0 to 65535"),
        ("host:x", "a port of 0 to 65535"),
        ("host:-1", "a port of 0 to 65535"),
        ("host:65536", "a port of 0 to 65535"),
        ("host:" + "9" * 10_000, "a port of 0 to 65535"),
        ("host:\N{ARABIC-INDIC DIGIT THREE}", "a port of 0 to 65535"),
        ("http://host:2379/v3", "a port of 0 to 65535"),
        ("::1:2379", "write [::1]:2379, or"),
        ("http://::1:2379", "write [::1]:2379, or"),
        ("::1", "write [::1]:2379, or"),
        ("fe80::7:x", "too many colons"),
        ("one:2:3", "too many colons"),
        ("[::1", "such as [::1]:2379"),
        ("[::1]2379", "such as [::1]:2379"),
        ("[127.0.0.1]:2379", "has no brackets, such as 127.0.0.1:2379"),
        ("me@host:1", "is not a host name or an IP address"),
        ("my host:1", "is not a host name or an IP address"),
        ("ho\0st:1", "is not a host name or an IP address"),
        ("ho..st:1", "is not a host name or an IP address"),
        ("h" * 64 + ":1", "is not a host name or an IP address"),
        ("ftp://host:21", "has the unknown scheme ftp://"),
        ("unix://run/x", "write unix:run/x for a path"),
        ("unix:", "such as unix:/"),
        ("unix:/run/\0x", "such as unix:/"),
    ],
)
def test_a_bad_address_is_refused_with_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^.") as caught:
        parse_address(text)
    assert said in str(caught.value)
    assert repr(text)[1:-1][:40] in str(caught.value)


def test_ipv6_without_brackets_is_refused_also_where_a_port_need_not_be_written() -> None:
    with pytest.raises(ValueError, match=r"write \[::1\]:2379"):
        parse_address("::1", 2379)


@pytest.mark.parametrize("letter", ["x", "\N{LATIN SMALL LETTER U WITH DIAERESIS}"])
def test_a_path_is_as_long_as_a_unix_socket_takes_in_bytes(letter: str) -> None:
    longest = letter * (MAX_UNIX_PATH_BYTES // len(os.fsencode(letter)))
    assert parse_address(f"unix:{longest}") == UnixAddress(longest)
    with pytest.raises(ValueError, match=r"Unix socket must have at most 107 bytes, got 10[89]"):
        parse_address(f"unix:{longest}{letter}")


def test_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not None"):
        parse_address(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("port", [-1, MAX_PORT + 1])
def test_an_address_cannot_be_made_with_a_port_that_is_none(port: int) -> None:
    with pytest.raises(ValueError, match="0 to 65535"):
        TcpAddress("localhost", port)


ports = st.integers(0, MAX_PORT)
names = st.from_regex(r"[a-z][a-z0-9-]{0,20}(\.[a-z0-9]{1,20}){0,3}", fullmatch=True)
hosts = names | st.ip_addresses().map(str)
paths = st.text(string.printable, min_size=1, max_size=MAX_UNIX_PATH_BYTES)
addresses = st.builds(TcpAddress, hosts, ports, st.sampled_from([None, True, False])) | st.builds(
    UnixAddress, paths
)


@given(addresses)
def test_what_is_written_is_read_as_the_same(address: Address) -> None:
    assert parse_address(str(address)) == address


@given(st.text(st.sampled_from("[]:/0129.ahttpsunix%@ ")))
def test_any_text_is_read_or_refused_with_a_value_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address
