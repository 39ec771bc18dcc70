"""What plain answers of etcd look like, and what all of them say about scripts of other sites."""

from http import HTTPStatus
from typing import Final

from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.pages import Reply

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

CORS: Final[Fields] = (
    (b"Access-Control-Allow-Headers", b"accept, content-type, authorization"),
    (b"Access-Control-Allow-Methods", b"POST, GET, OPTIONS, PUT, DELETE"),
    (b"Access-Control-Allow-Origin", b"*"),
)
"""etcd's default: everybody may ask."""

_NO_SNIFFING: Final = ((b"X-Content-Type-Options", b"nosniff"),)


def plain(status: HTTPStatus, text: str, fields: Fields = ()) -> Reply:
    """Answer with a line of text."""
    return Reply(status, TEXT, f"{text}\n".encode(), (*fields, *_NO_SNIFFING, *CORS))


def empty(status: HTTPStatus, fields: Fields = ()) -> Reply:
    """Answer with nothing."""
    return Reply(status, "", b"", (*fields, *CORS))
