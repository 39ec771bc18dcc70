"""Plain answers, with the content types and texts of etcd's."""

from http import HTTPStatus
from typing import Final

from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.pages import Reply

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

_NO_SNIFFING: Final = ((b"X-Content-Type-Options", b"nosniff"),)


def plain(status: HTTPStatus, text: str, fields: Fields = ()) -> Reply:
    """Answer with a line of text."""
    return Reply(status, TEXT, f"{text}\n".encode(), (*fields, *_NO_SNIFFING))


def empty(status: HTTPStatus, fields: Fields = ()) -> Reply:
    """Answer with nothing."""
    return Reply(status, "", b"", fields)
