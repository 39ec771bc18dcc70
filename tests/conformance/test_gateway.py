"""etcd's JSON gateway: the same requests to etcd and to ours, down to the text of the answers."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.conformance.client import Client, Granter
from tests.conformance.gateway_client import (
    GatewayClient,
    encoded,
    without_revision,
)
from tests.support.servers import RunningServer

JSON: Final = {"content-type": "application/json"}
FROM_GRPC: Final = {**JSON, "grpc-metadata-content-type": "application/grpc"}
TEXT: Final = {
    "content-type": "text/plain; charset=utf-8",
    "x-content-type-options": "nosniff",
}
NO_KEY: Final = "etcdserver: key is not provided"
MIB: Final = 1024 * 1024


@pytest.fixture
def gateway(server: RunningServer) -> Iterator[GatewayClient]:
    client = GatewayClient(server.endpoint)
    yield client
    client.close()


def refusal(text: str, code: int) -> str:
    """Write an error as the gateway does."""
    quoted = json.dumps(text, ensure_ascii=False)
    for character in "<>&":
        quoted = quoted.replace(character, f"\\u{ord(character):04x}")
    return f'{{"error":{quoted},"code":{code},"message":{quoted}}}'


# What is written.


def test_put_and_range_to_the_letter(gateway: GatewayClient, key: bytes) -> None:
    put = gateway.post("/v3/kv/put", {"key": encoded(key), "value": encoded(b"v\xff")})
    assert (put.status, put.fields) == (200, FROM_GRPC)
    revision = put.json["header"]["revision"]
    assert put.text == f'{{"header":{{"revision":"{revision}"}}}}'
    found = gateway.post("/v3/kv/range", {"key": encoded(key)})
    assert found.text == (
        f'{{"header":{{"revision":"{revision}"}},"kvs":[{{"key":"{encoded(key)}",'
        f'"create_revision":"{revision}","mod_revision":"{revision}","version":"1",'
        f'"value":"{encoded(b"v" + bytes((255,)))}"}}],"count":"1"}}'
    )


def test_zero_values_are_left_out(gateway: GatewayClient, key: bytes) -> None:
    assert gateway.post("/v3/kv/range", {"key": encoded(key)}).json.keys() == {"header"}
    assert gateway.post("/v3/maintenance/defragment", {}).text == "{}"


def test_txn_to_the_letter(gateway: GatewayClient, key: bytes) -> None:
    name = encoded(key)
    answer = gateway.post(
        "/v3/kv/txn",
        {
            "compare": [{"key": name, "target": "VERSION", "result": "EQUAL", "version": "0"}],
            "success": [
                {"request_put": {"key": name, "value": encoded(b"1")}},
                {"requestRange": {"key": name}},
                {"request_delete_range": {"key": encoded(key + b"x")}},
                {"request_txn": {"success": [{"request_range": {"key": name, "countOnly": True}}]}},
            ],
        },
    )
    revision = answer.json["header"]["revision"]
    header = f'"header":{{"revision":"{revision}"}}'
    assert answer.text == (
        f'{{{header},"succeeded":true,"responses":[{{"response_put":{{{header}}}}},'
        f'{{"response_range":{{{header},"kvs":[{{"key":"{name}","create_revision":"{revision}",'
        f'"mod_revision":"{revision}","version":"1","value":"MQ=="}}],"count":"1"}}}},'
        f'{{"response_delete_range":{{{header}}}}},{{"response_txn":{{"header":{{}},'
        f'"succeeded":true,"responses":[{{"response_range":{{{header},"count":"1"}}}}]}}}}]}}'
    )


def test_the_two_fields_of_a_oneof_are_one_and_the_later_wins(
    gateway: GatewayClient, key: bytes
) -> None:
    both = {"request_put": {"key": encoded(key)}, "request_range": {"key": encoded(key)}}
    answer = gateway.post("/v3/kv/txn", {"success": [both]})
    assert [list(each) for each in answer.json["responses"]] == [["response_put"]]


def test_an_answer_that_is_long(gateway: GatewayClient, client: Client, key: bytes) -> None:
    keys = [key + b"%05d" % number for number in range(3000)]
    client.put_all(keys, b"x" * 50)
    end = encoded(key[:-1] + bytes((key[-1] + 1,)))
    found = gateway.post("/v3/kv/range", {"key": encoded(key), "range_end": end}).json
    assert [pair["key"] for pair in found["kvs"]] == [encoded(each) for each in keys]
    assert (found["count"], found["kvs"][-1]["value"]) == ("3000", encoded(b"x" * 50))
    deleted = gateway.post(
        "/v3/kv/deleterange", {"key": encoded(key), "range_end": end, "prev_kv": True}
    ).json
    assert (deleted["deleted"], len(deleted["prev_kvs"])) == ("3000", 3000)


def test_large_values_and_what_is_read_within_others_to_the_letter(
    gateway: GatewayClient, client: Client, key: bytes
) -> None:
    values = [bytes(range(256)) * 800, b"", bytes(300_001), b"x" * 4_096]
    names = [key + b"%d" % number for number in range(len(values))]
    for name, value in zip(names, values, strict=True):
        client.put(name, value)
    end = encoded(key[:-1] + bytes((key[-1] + 1,)))
    read = {"request_range": {"key": encoded(key), "range_end": end}}
    answer = gateway.post("/v3/kv/txn", {"success": [read, {"request_txn": {"success": [read]}}]})
    kvs = answer.json["responses"][0]["response_range"]["kvs"]
    assert [(pair["key"], pair.get("value", "")) for pair in kvs] == [
        (encoded(name), encoded(value)) for name, value in zip(names, values, strict=True)
    ]
    header = json.dumps({"header": answer.json["header"]}, separators=(",", ":"))[1:-1]
    pairs = json.dumps(kvs, separators=(",", ":"))
    found = f'{{"response_range":{{{header},"kvs":{pairs},"count":"4"}}}}'
    assert answer.text == (
        f'{{{header},"succeeded":true,"responses":[{found},{{"response_txn":{{"header":{{}},'
        f'"succeeded":true,"responses":[{found}]}}}}]}}'
    )


# What is read.


@pytest.mark.parametrize(
    "more",
    [
        '"limit":1',
        '"limit":"1"',
        '"limit":" 1"',
        '"limit":-0',
        '"limit":"null"',
        '"limit":null',
        '"sort_order":"DESCEND"',
        '"sortOrder":"DESCEND"',
        '"sort_order":2',
        '"sort_order":7',
        '"sort_order":null',
        '"nope":[1,{"a":1E400}]',
        '"nope":"\\ud800"',
        '"key":"KEY"',
    ],
)
def test_what_is_taken(gateway: GatewayClient, key: bytes, more: str) -> None:
    gateway.post("/v3/kv/put", {"key": encoded(key)})
    body = f'{{"key":"KEY",{more}}}'.replace("KEY", encoded(key))
    answer = gateway.post("/v3/kv/range", body)
    assert (answer.status, answer.json.get("count")) == (200, "1")


@pytest.mark.parametrize(
    "body",
    [
        '{"key":"KEY"} ',
        '\n\t {"key":"KEY"}{"key":"!"}',
        '{"key":"KEY"} x',
        '{"k\\u0065y":"KEY"}',
        '{"key":"eA==","key":"KEY"}',
        '{"range_end":"AA==","rangeEnd":null,"key":"KEY"}',
        '{"key":"KEY\\n"}',
        '{"key":"\\r\\nKEY"}',
        '{"key":BYTES}',
    ],
)
def test_what_is_taken_as_a_body(gateway: GatewayClient, key: bytes, body: str) -> None:
    gateway.post("/v3/kv/put", {"key": encoded(key)})
    data = json.dumps(list(key))
    answer = gateway.post("/v3/kv/range", body.replace("KEY", encoded(key)).replace("BYTES", data))
    assert (answer.status, answer.json.get("count")) == (200, "1")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_no_content_type_matters(gateway: GatewayClient, key: bytes, content_type: str) -> None:
    answer = gateway.post("/v3/kv/put", {"key": encoded(key)}, content_type=content_type)
    assert (answer.status, answer.fields) == (200, FROM_GRPC)


@pytest.mark.parametrize("body", ["", " ", "\n", "{}", "null", '{"key":null}', '{"Key":"eA=="}'])
def test_what_counts_as_an_empty_message(gateway: GatewayClient, body: str) -> None:
    answer = gateway.post("/v3/kv/range", body)
    assert (answer.status, answer.fields, answer.text) == (400, JSON, refusal(NO_KEY, 3))


MISMATCH: Final = "json: cannot unmarshal {} into Go value of type {}"
MAP: Final = "map[string]json.RawMessage"
UNREADABLE: Final[list[tuple[str | bytes, str]]] = [
    ("{", "unexpected EOF"),
    ('{"limit"', "unexpected EOF"),
    ('{"limit":', "unexpected EOF"),
    ('{"limit":1', "unexpected EOF"),
    ('{"a":"\\u12', "unexpected EOF"),
    ('"', "unexpected EOF"),
    ("[]", MISMATCH.format("array", MAP)),
    ("1", MISMATCH.format("number", MAP)),
    ("true", MISMATCH.format("bool", MAP)),
    ('"x"', MISMATCH.format("string", MAP)),
    ('{"key":1}', MISMATCH.format("number", "[]uint8")),
    ('{"key":{}}', MISMATCH.format("object", "[]uint8")),
    ('{"key":true}', MISMATCH.format("bool", "[]uint8")),
    ('{"key":[102,"x"]}', MISMATCH.format("string", "uint8")),
    ('{"key":[300]}', MISMATCH.format("number 300", "uint8")),
    ('{"limit":1.0}', MISMATCH.format("number 1.0", "int64")),
    ('{"limit":"1.5"}', MISMATCH.format("number 1.5", "int64")),
    ('{"limit":1e0}', MISMATCH.format("number 1e0", "int64")),
    ('{"limit":1e400}', MISMATCH.format("number 1e400", "int64")),
    ('{"limit":9223372036854775808}', MISMATCH.format("number 9223372036854775808", "int64")),
    ('{"limit":true}', MISMATCH.format("bool", "int64")),
    ('{"limit":[]}', MISMATCH.format("array", "int64")),
    ('{"limit":"[]"}', MISMATCH.format("array", "int64")),
    ('{"limit":{}}', MISMATCH.format("object", "int64")),
    ('{"serializable":"true"}', MISMATCH.format("string", "bool")),
    ('{"serializable":1}', MISMATCH.format("number", "bool")),
    ('{"sort_order":1.0}', MISMATCH.format("number 1.0", "protoreflect.EnumNumber")),
    ('{"sort_order":true}', MISMATCH.format("bool", "protoreflect.EnumNumber")),
    ('{"limit":""}', "unexpected end of JSON input"),
    ('{"limit":NaN}', "invalid character 'N' looking for beginning of value"),
    ('{"limit":"NaN"}', "invalid character 'N' looking for beginning of value"),
    ('{"limit":Infinity}', "invalid character 'I' looking for beginning of value"),
    ('{"limit":-Infinity}', "invalid character 'I' in numeric literal"),
    ('{"limit":01}', "invalid character '1' after object key:value pair"),
    ('{"limit":-}', "invalid character '}' in numeric literal"),
    ('{"limit":1.x}', "invalid character 'x' after decimal point in numeric literal"),
    ('{"limit":1ex}', "invalid character 'x' in exponent of numeric literal"),
    ('{"limit":nul}', "invalid character '}' in literal null (expecting 'l')"),
    ('{"limit":tru1}', "invalid character '1' in literal true (expecting 'e')"),
    ('{"limit":fals}', "invalid character '}' in literal false (expecting 'e')"),
    ('{"limit":"a\\x"}', "invalid character 'x' in string escape code"),
    ('{"limit":"\\u12x4"}', "invalid character 'x' in \\u hexadecimal character escape"),
    ('{"limit":"a\nb"}', "invalid character '\\n' in string literal"),
    ('{"limit" 1}', "invalid character '1' after object key"),
    ("{1:2}", "invalid character '1' looking for beginning of object key string"),
    ("{,}", "invalid character ',' looking for beginning of object key string"),
    ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    ('{"a":[1,]}', "invalid character ']' looking for beginning of value"),
    ('{"a":[1 2]}', "invalid character '2' after array element"),
    ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    ('{"limit":"1x"}', "invalid character 'x' after top-level value"),
    ("'", "invalid character '\\'' looking for beginning of value"),
    ("\0", "invalid character '\\x00' looking for beginning of value"),
    ("\ufeff{}", "invalid character 'ï' looking for beginning of value"),
    ("<&>", "invalid character '<' looking for beginning of value"),
]


@pytest.mark.parametrize(("body", "why"), UNREADABLE, ids=repr)
def test_what_cannot_be_read_is_400_in_etcds_words(
    gateway: GatewayClient, body: str, why: str
) -> None:
    answer = gateway.post("/v3/kv/range", body)
    assert (answer.status, answer.fields, answer.text) == (400, JSON, refusal(why, 3))


@pytest.mark.parametrize("name", ["descend", "2", "<&>", "é", ""])
def test_an_enum_that_is_unknown(gateway: GatewayClient, name: str) -> None:
    answer = gateway.post("/v3/kv/range", {"sort_order": name})
    raw = json.dumps(name)  # as the body has it
    shown = f'"{raw.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
    if name != "é":  # written as an escape, which etcd repeats as it came
        why = f"unknown value {shown} for enum etcdserverpb.RangeRequest.SortOrder"
        assert answer.text == refusal(why, 3)
    assert answer.status == 400


@pytest.mark.parametrize(
    ("text", "at"),
    [
        *[("!!", 0), ("Zm8", 0), ("_-8=", 0), ("/+8", 0), ("Zm 9v", 2), ("Zm9vZg=", 7)],
        *[("Zm9vZg", 4), ("Zm9vZ", 4), ("Zm9v=", 4), ("=", 0), ("Zg==Zg==", 4), ("Zg= =", 2)],
        *[("Zm9vé", 4), ("Z===", 1), ("Zg=a", 2), ("Zg==\n!", 5), ("Zm9v\nZg=", 8), ("\n", None)],
        *[("Zh==", None), ("Zm9v\r\nZg==", None), ("Zg=\n=", None), ("", None), ("/+8=", None)],
    ],
)
def test_base64_is_read_as_go_does(gateway: GatewayClient, text: str, at: int | None) -> None:
    body = json.dumps({"key": text}, ensure_ascii=False)
    answer = gateway.post("/v3/kv/range", body)
    if at is not None:
        why = f"illegal base64 data at input byte {at}"
        assert (answer.status, answer.text) == (400, refusal(why, 3))
    else:
        assert answer.status == 200 or answer.text == refusal(NO_KEY, 3)


def test_nesting_that_is_deep_but_no_madness(gateway: GatewayClient, key: bytes) -> None:
    nested = '{"a":' * 200 + "1" + "}" * 200
    body = f'{{"a":{nested},"key":"{encoded(key)}"}}'
    assert gateway.post("/v3/kv/range", body).status == 200


def test_nesting_that_is_madness(gateway: GatewayClient) -> None:
    answer = gateway.post("/v3/kv/range", "[" * 20_000)
    assert answer.status == 400
    assert "exceeded max depth" in answer.json["error"]


@pytest.mark.parametrize(
    ("compare", "why"),
    [
        ({}, MISMATCH.format("object", "[]json.RawMessage")),
        ("x", MISMATCH.format("string", "[]json.RawMessage")),
        ([1], MISMATCH.format("number", MAP)),
        ([None], NO_KEY),
    ],
)
def test_what_is_no_list_of_messages(gateway: GatewayClient, compare: Any, why: str) -> None:
    answer = gateway.post("/v3/kv/txn", {"compare": compare})
    assert (answer.status, answer.text) == (400, refusal(why, 3))


# Errors of calls.


def test_errors_have_the_status_of_their_code(
    gateway: GatewayClient, grant: Granter, client: Client, key: bytes
) -> None:
    lease = grant()
    client.compact(client.put(key).header.revision)
    for path, body, status, code, text in [
        ("lease/revoke", {"ID": "1"}, 404, 5, "etcdserver: requested lease not found"),
        ("kv/lease/revoke", {"ID": 1}, 404, 5, "etcdserver: requested lease not found"),
        ("lease/grant", {"TTL": 9, "ID": lease}, 400, 9, "etcdserver: lease already exists"),
        ("lease/grant", {"TTL": 9_000_000_001}, 400, 11, "etcdserver: too large lease TTL"),
        (
            "kv/put",
            {"key": encoded(key), "lease": 1},
            404,
            5,
            "etcdserver: requested lease not found",
        ),
        (
            "kv/range",
            {"key": encoded(key), "revision": 1},
            *(400, 11, "etcdserver: mvcc: required revision has been compacted"),
        ),
        ("election/leader", {"name": encoded(key)}, 500, 2, "election: no leader"),
        ("election/proclaim", {}, 500, 2, '"leader" field must be provided'),
        ("cluster/member/remove", {"ID": 1}, 404, 5, "etcdserver: member not found"),
        ("auth/authenticate", {}, 400, 9, "etcdserver: authentication is not enabled"),
        ("maintenance/transfer-leadership", {}, 400, 9, "etcdserver: bad leader transferee"),
    ]:
        answer = gateway.post(f"/v3/{path}", body)
        assert (answer.status, answer.fields) == (status, JSON)
        assert answer.text == refusal(text, code)


@pytest.mark.parametrize(
    ("value_bytes", "status", "code", "why"),
    [
        (1536 * 1024, 400, 3, "etcdserver: request is too large"),
        (2 * MIB - 9, 400, 3, "etcdserver: request is too large"),
        (2 * MIB, 429, 8, "grpc: received message larger than max (2097161 vs. 2097152)"),
    ],
)
def test_messages_that_are_too_large(
    gateway: GatewayClient, value_bytes: int, status: int, code: int, why: str
) -> None:
    value = encoded(bytes(value_bytes))
    answer = gateway.post("/v3/kv/put", {"key": encoded(b"xx"), "value": value})
    assert (answer.status, answer.text) == (status, refusal(why, code))


@pytest.mark.parametrize("mib", [4, 12])
def test_bodies_that_are_far_too_large(server: RunningServer, mib: int) -> None:
    client = GatewayClient(server.endpoint)
    answer = client.post("/v3/kv/put", {"key": "eA==", "value": encoded(bytes(mib * MIB))})
    client.close()
    assert (answer.status, answer.json["code"]) == (429, 8)
    assert answer.json["error"].startswith("grpc: received message larger than max (")


# Paths and methods.


@pytest.mark.parametrize("path", ["/v3/kv/range", "/v3beta/kv/range", "/v3/kv/r%61nge?limit=x"])
def test_the_paths_of_a_method(gateway: GatewayClient, key: bytes, path: str) -> None:
    answer = gateway.post(path, {"key": encoded(key)})
    assert (answer.status, without_revision(answer.text)) == (200, "{HEADER}")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "FOO"])
def test_calls_are_made_with_post(gateway: GatewayClient, method: str) -> None:
    answer = gateway.ask(method, "/v3/kv/range")
    assert (answer.status, answer.fields) == (405, TEXT)
    assert answer.text == ("" if method == "HEAD" else "Method Not Allowed\n")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v3/kv/nope", "Not Found\n"),
        ("/v3/kv/range/", "Not Found\n"),
        ("/v3/kv/range:x", "Not Found\n"),
        ("/v3/maintenance/hashkv", "Not Found\n"),
        ("/v3/", "Not Found\n"),
        ("/v3alpha/kv/range", "404 page not found\n"),
        ("/V3/kv/range", "404 page not found\n"),
        ("/", "404 page not found\n"),
        ("/nope", "404 page not found\n"),
        ("/version/", "404 page not found\n"),
        ("/v2/keys", "404 page not found\n"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_paths_that_are_not_there(
    gateway: GatewayClient, method: str, path: str, text: str
) -> None:
    answer = gateway.ask(method, path)
    assert (answer.status, answer.fields, answer.text) == (404, TEXT, text)


@pytest.mark.parametrize("path", ["/v3/kv//range", "/v3/kv/./range", "/v3/kv/../kv/range"])
def test_paths_that_are_not_clean_are_moved(gateway: GatewayClient, path: str) -> None:
    answer = gateway.post(path, "{}")
    assert (answer.status, answer.fields) == (301, {"location": "/v3/kv/range"})


@pytest.mark.parametrize("path", ["/v3/kv/range", "/version", "/nope", "*"])
def test_options_are_answered_for_every_path(gateway: GatewayClient, path: str) -> None:
    answer = gateway.ask("OPTIONS", path)
    assert answer.fields == {}
    assert (answer.status, answer.text) == (200, "")


@pytest.mark.parametrize(
    ("path", "content_type", "text"),
    [
        ("/version", "application/json", '{"etcdserver":"3.5.1","etcdcluster":"3.5.0"}'),
        ("/version?x=1", "application/json", '{"etcdserver":"3.5.1","etcdcluster":"3.5.0"}'),
        ("/health", "text/plain; charset=utf-8", '{"health":"true","reason":""}'),
    ],
)
def test_pages(gateway: GatewayClient, path: str, content_type: str, text: str) -> None:
    answer = gateway.ask("GET", path)
    assert (answer.status, answer.text) == (200, text)
    assert answer.fields == {"content-type": content_type}


@pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", ["/version", "/health"])
def test_pages_are_asked_for_with_get(gateway: GatewayClient, path: str, method: str) -> None:
    answer = gateway.ask(method, path)
    assert (answer.status, answer.fields) == (405, {**TEXT, "allow": "GET"})


@pytest.mark.parametrize("timeout", ["x", "1", "S", "1x", "123456789S"])
def test_a_timeout_that_is_none(gateway: GatewayClient, timeout: str) -> None:
    answer = gateway.post("/v3/kv/range", "{}", grpc_timeout=timeout)
    if timeout == "123456789S":  # etcd takes nine digits, though gRPC has eight
        assert answer.status == 400
    else:
        assert answer.text == refusal(f"invalid grpc-timeout: {timeout}", 3)


def test_a_lock_that_takes_too_long(gateway: GatewayClient, grant: Granter, key: bytes) -> None:
    mine, other = grant(), grant()
    locked = gateway.post("/v3/lock/lock", {"name": encoded(key), "lease": mine})
    assert (locked.status, locked.fields) == (200, FROM_GRPC)
    assert locked.json["key"] == encoded(b"%b/%x" % (key, mine))
    waited = gateway.post(
        "/v3/lock/lock", {"name": encoded(key), "lease": other}, grpc_timeout="200m"
    )
    code = 2 if waited.status == 500 else 4  # etcd's own client and server run a race
    assert waited.status in (500, 504)
    assert waited.text == refusal("context deadline exceeded", code)
    freed = gateway.post("/v3/lock/unlock", {"key": locked.json["key"]})
    assert without_revision(freed.text) == "{HEADER}"
