"""A client of the JSON gateway that hides nothing: status, fields and the very text of answers."""

import base64
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

TIMEOUT_S: Final = 60.0
_IDENTITY: Final = re.compile(rb'"cluster_id":"\d+","member_id":"\d+"')
_TERM: Final = re.compile(rb',"raft_term":"\d+"')
_REVISION: Final = re.compile(rb'"header":\{"revision":"(\d+)"\}')
_DETAILS: Final = re.compile(
    rb',"details":\[\{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"[A-Z_]+",'
    rb'"domain":"leasehold.v1","metadata":\{[^{}]*\}\}\](?=\})'
)
"""The structured details of our errors, a known difference."""
_VARYING: Final = frozenset(("date", "content-length", "connection", "transfer-encoding"))
CORS_FIELDS: Final = frozenset(
    f"access-control-allow-{what}" for what in ("headers", "methods", "origin")
)
"""Sent by etcd to everybody, and by ours to listed origins only: see test_web_access."""


class Answer(NamedTuple):
    """What came back; `text` without what differs between servers."""

    status: int
    fields: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The document."""
        return json.loads(self.text)


class GatewayClient:
    """One connection, used for one request after the other."""

    def __init__(self, endpoint: str, hidden: frozenset[str] = CORS_FIELDS) -> None:
        """Open a connection; `hidden` names further fields that are left out of answers."""
        self.endpoint = endpoint
        self._hidden = _VARYING | hidden
        self._connection = http.client.HTTPConnection(endpoint, timeout=TIMEOUT_S)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def ask(
        self, method: str, path: str, body: Any = None, fields: dict[str, str] | None = None
    ) -> Answer:
        """Make a request; a body that is no text is written as JSON."""
        if body is not None and not isinstance(body, str | bytes):
            body = json.dumps(body)
        data = body.encode() if isinstance(body, str) else body
        self._connection.request(method, path, data, fields or {})
        answer = self._connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        kept = {name: value for name, value in named.items() if name not in self._hidden}
        return Answer(answer.status, kept, without_identity(answer.read()))

    def post(self, path: str, body: Any = None, **fields: str) -> Answer:
        """Make a call."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        return self.ask("POST", path, body, named)

    @contextmanager
    def stream(self, path: str, body: Any) -> Iterator["Lines"]:
        """Make a call whose answer has no end."""
        connection = http.client.HTTPConnection(self.endpoint, timeout=TIMEOUT_S)
        try:
            text = body if isinstance(body, str) else json.dumps(body)
            connection.request("POST", path, text.encode())
            yield Lines(connection.getresponse())
        finally:
            connection.close()


class Lines:
    """The lines of an answer that has no end."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.status = answer.status
        self.is_chunked = answer.getheader("Transfer-Encoding") == "chunked"

    def next(self) -> str:
        """Wait for the next line."""
        return without_identity(self._answer.readline())

    def result(self) -> Any:
        """Wait for the next line; give what is in it."""
        return json.loads(self.next())["result"]


def without_identity(text: bytes) -> str:
    """Take out of headers what differs between servers, and check that it was there."""
    found = _IDENTITY.search(text)
    assert (found is None) == (_TERM.search(text) is None)
    text = _IDENTITY.sub(b"", _TERM.sub(b"", text)).replace(b'"header":{,', b'"header":{')
    return _DETAILS.sub(b"", text).decode()


def without_revision(text: str) -> str:
    """Take the revision out of a header, too."""
    return _REVISION.sub(b"HEADER", text.encode()).decode()


def encoded(data: bytes) -> str:
    """Write bytes as the gateway does."""
    return base64.b64encode(data).decode()
