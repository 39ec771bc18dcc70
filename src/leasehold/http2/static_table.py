"""Header fields, the static table of HPACK (RFC 7541, appendix A), and names met in gRPC."""

from typing import Final

ENTRY_OVERHEAD_BYTES: Final = 32
"""The size that RFC 7541 (4.1) and RFC 9113 (6.5.2) add to a field's name and value."""


class Field:
    """A header field. Two fields are equal only if they are the same object, on purpose.

    A peer that refers to an entry of the table again gets the same object again. So a tuple of
    fields is a dictionary key that costs no comparison of bytes. Never change a field: the table
    holds the same object.
    """

    __slots__ = ("name", "value")

    def __init__(self, name: bytes, value: bytes) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.value!r})"


STATIC_TABLE: Final = tuple(
    Field(name, value)
    for name, value in (
        (b":authority", b""),
        (b":method", b"GET"),
        (b":method", b"POST"),
        (b":path", b"/"),
        (b":path", b"/index.html"),
        (b":scheme", b"http"),
        (b":scheme", b"https"),
        (b":status", b"200"),
        (b":status", b"204"),
        (b":status", b"206"),
        (b":status", b"304"),
        (b":status", b"400"),
        (b":status", b"404"),
        (b":status", b"500"),
        (b"accept-charset", b""),
        (b"accept-encoding", b"gzip, deflate"),
        (b"accept-language", b""),
        (b"accept-ranges", b""),
        (b"accept", b""),
        (b"access-control-allow-origin", b""),
        (b"age", b""),
        (b"allow", b""),
        (b"authorization", b""),
        (b"cache-control", b""),
        (b"content-disposition", b""),
        (b"content-encoding", b""),
        (b"content-language", b""),
        (b"content-length", b""),
        (b"content-location", b""),
        (b"content-range", b""),
        (b"content-type", b""),
        (b"cookie", b""),
        (b"date", b""),
        (b"etag", b""),
        (b"expect", b""),
        (b"expires", b""),
        (b"from", b""),
        (b"host", b""),
        (b"if-match", b""),
        (b"if-modified-since", b""),
        (b"if-none-match", b""),
        (b"if-range", b""),
        (b"if-unmodified-since", b""),
        (b"last-modified", b""),
        (b"link", b""),
        (b"location", b""),
        (b"max-forwards", b""),
        (b"proxy-authenticate", b""),
        (b"proxy-authorization", b""),
        (b"range", b""),
        (b"referer", b""),
        (b"refresh", b""),
        (b"retry-after", b""),
        (b"server", b""),
        (b"set-cookie", b""),
        (b"strict-transport-security", b""),
        (b"transfer-encoding", b""),
        (b"user-agent", b""),
        (b"vary", b""),
        (b"via", b""),
        (b"www-authenticate", b""),
    )
)
"""Entry `i` of the RFC is `STATIC_TABLE[i - 1]`."""

TIMEOUT_NAME: Final = b"grpc-timeout"

_NAMES_OF_GRPC: Final = (
    TIMEOUT_NAME,
    b"te",
    b"grpc-encoding",
    b"grpc-accept-encoding",
    b"grpc-message-type",
    b"grpc-previous-rpc-attempts",
    b"grpc-tags-bin",
    b"grpc-trace-bin",
    b"hasleader",
    b"token",
)

KNOWN_NAMES: Final = {
    **{field.name: field.name for field in STATIC_TABLE},
    **{name: name for name in _NAMES_OF_GRPC},
}
"""Maps a name to the one object for it, so that such names are compared by `is`."""
