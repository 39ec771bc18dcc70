"""`EndpointList`: what an operator allows, and spellings that must not get around it."""

import pytest

from leasehold.basics.endpoint_list import EndpointList, normal_endpoint


def allows(entries: list[str], endpoint: str) -> bool:
    return EndpointList(entries).allows(normal_endpoint(endpoint))


@pytest.mark.parametrize(
    ("entry", "endpoint"),
    [
        ("db.example.com", "db.example.com:2379"),
        ("db.example.com:2379", "db.example.com:2379"),
        ("db.example.com:2379", "https://db.example.com:2379"),
        ("DB.Example.com", "db.EXAMPLE.com:2379"),
        ("db.example.com", "db.example.com.:2379"),
        ("db.example.com.", "db.example.com:2379"),
        ("10.0.0.1", "10.0.0.1:1"),
        ("10.0.0.1", "[::ffff:10.0.0.1]:1"),
        ("[::1]", "[0:0:0:0:0:0:0:1]:2379"),
        ("[::1]:2379", "[::0001]:2379"),
        ("bücher.example", "xn--bcher-kva.example:80"),
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("unix:/run/x.sock", "unix:///run/x.sock"),
        ("*", "anything.example:1"),
        ("*", "[2001:db8::1]:1"),
    ],
)
def test_an_endpoint_on_the_list_is_allowed_however_it_is_spelled(
    entry: str, endpoint: str
) -> None:
    assert allows([entry], endpoint)


@pytest.mark.parametrize(
    ("entry", "endpoint"),
    [
        ("db.example.com:2379", "db.example.com:2380"),
        ("db.example.com", "db.example.com.evil.example:2379"),
        ("example.com", "db.example.com:2379"),
        ("db.example.com", "xdb.example.com:2379"),
        ("127.0.0.1", "localhost:2379"),
        ("localhost", "127.0.0.1:2379"),
        ("127.0.0.1", "[::1]:2379"),
        ("*", "unix:/run/x.sock"),
        ("unix:/run/x.sock", "unix:/run/x.sock2"),
        ("[fe80::1]", "[fe80::1%eth0]:1"),
    ],
)
def test_another_endpoint_is_not_allowed(entry: str, endpoint: str) -> None:
    assert not allows([entry], endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "allowed.example@evil.example:2379",
        "http://allowed.example:80@evil.example:2379",
        "allowed.example#evil.example:2379",
        "allowed.example/:2379",
        "allowed.example",
        "127.1:2379",
        "2130706433:2379",
        "0x7f000001:2379",
        "0177.0.0.1:2379",
        "127.0.0.01:2379",
        "1.2.3.4.5:2379",
        "::1:2379",
        "unix:run/x.sock",
        "unix:/run/../etc/x.sock",
        "unix:/run//x.sock",
        "unix:/run/./x.sock",
        "allowed.example:2379 ",
        "allowed.example:\uff12379",
        "",
    ],
)
def test_an_ambiguous_spelling_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        normal_endpoint(endpoint)


def test_an_empty_list_allows_nothing() -> None:
    assert not EndpointList().allows(normal_endpoint("localhost:1"))
    assert not EndpointList()


@pytest.mark.parametrize("entry", ["", "http://a.example:1", "a.example:", "*.example", "a:b:c"])
def test_an_entry_that_is_not_one_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        EndpointList([entry])


def test_the_normal_form_is_the_one_to_connect_to() -> None:
    assert str(normal_endpoint("HTTPS://DB.Example.COM.:2379")) == "https://db.example.com:2379"
    assert str(normal_endpoint("[::FFFF:7f00:1]:1")) == "127.0.0.1:1"
