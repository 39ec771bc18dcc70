"""etcd's JSON gateway, on the same port as gRPC: routes requests to their handlers."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from posixpath import normpath
from typing import Final
from urllib.parse import quote, unquote

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from leasehold.errors import Status
from leasehold.grpc.call_context import CallContext, Metadata, call_interceptor, parse_timeout
from leasehold.grpc.error_details import as_rpc_error
from leasehold.grpc.http_handlers import (
    HttpRequest,
    Pages,
    PendingResponse,
    Reply,
    ResponseWriter,
    find_page,
)
from leasehold.grpc.protocol import RpcError, too_large
from leasehold.grpc.routes import Methods
from leasehold.http2.limits import ConnectionLimits
from leasehold.server.etcd.maintenance import CLUSTER_VERSION, ETCD_VERSION
from leasehold.server.gateway.gateway_routes import OLD_PREFIX, PREFIX, Route, find_routes
from leasehold.server.gateway.http_answers import JSON, empty, plain, refused
from leasehold.server.gateway.json_call import JsonCall
from leasehold.server.gateway.json_reader import Documents, Unreadable, fill_steps
from leasehold.server.gateway.web_access import WebAccess

_VERSIONS: Final = {"etcdserver": ETCD_VERSION, "etcdcluster": CLUSTER_VERSION}
"""The reported versions, by which clients choose their requests."""

MAX_MESSAGE_BYTES: Final = ConnectionLimits().max_message_bytes

MAX_DEPTH: Final = 100
"""Depth of nested messages that protobuf parses."""

LONG_BODY_BYTES: Final = 16 * 1024
"""A longer body is converted to a message in steps."""

STEPS_PER_SLICE: Final = 250
"""Nested messages that are parsed between two pauses: in a millisecond or two."""

_HEALTH: Final = "/health"
_WITHOUT_HEAD: Final = (_HEALTH, "/version")
_METADATA: Final = b"grpc-metadata-"
_FORWARDED: Final = frozenset((b"authorization",))
_ALLOW_GET: Final = ((b"Allow", b"GET"),)


class Gateway:
    """Answers requests that are not gRPC: calls as JSON, and pages."""

    def __init__(
        self,
        methods: Methods | None,
        pool: DescriptorPool,
        pages: Pages,
        health: Callable[[str], Reply],
        access: WebAccess | None = None,
    ) -> None:
        """Serve the methods, and pages; `health` is called with the query of its request.

        Without methods it serves pages only. `access` decides which requests of web browsers are
        answered.
        """
        self._access = access or WebAccess()
        self._routes = {} if methods is None else find_routes(methods, pool)
        self._pages = {**pages, "/version": _version}
        self._health = health

    def too_large(self, body_bytes: int) -> Reply:
        """Refuse a body as etcd refuses a message; the length of that message is unknown."""
        return refused(too_large(body_bytes, MAX_MESSAGE_BYTES))

    def handle(self, request: HttpRequest, response: ResponseWriter) -> PendingResponse | None:
        """Answer a request."""
        refusal, fields = self._access.judge(request.fields)
        if fields:
            response.add_fields(fields)
        if refusal is not None:
            response.reply(refusal)
            return None
        if request.method == b"OPTIONS":
            response.reply(empty(HTTPStatus.OK))
            return None
        path = unquote(request.target.partition(b"?")[0].decode(errors="replace"))
        cleaned = _cleaned(path)
        if cleaned != path:
            location = ((b"Location", quote(cleaned).encode()),)
            response.reply(empty(HTTPStatus.MOVED_PERMANENTLY, location))
            return None
        if path.startswith(OLD_PREFIX):
            path = PREFIX + path.removeprefix(OLD_PREFIX)
        route = self._routes.get(path)
        if route is None:
            response.reply(self._page(path, request))
        elif request.method != b"POST":
            response.reply(plain(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed"))
        else:
            return _call(route, request, response)
        return None

    def _page(self, path: str, request: HttpRequest) -> Reply:
        if path.startswith(PREFIX):
            return plain(HTTPStatus.NOT_FOUND, "Not Found")
        if path != _HEALTH and path not in self._pages:
            return plain(HTTPStatus.NOT_FOUND, "404 page not found")
        if request.method != b"GET" and (request.method != b"HEAD" or path in _WITHOUT_HEAD):
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "Method Not Allowed", _ALLOW_GET)
        if path == _HEALTH:
            return self._health(request.target.partition(b"?")[2].decode(errors="replace"))
        return find_page(self._pages, request.method, path.encode())


def _version() -> Reply:
    return Reply(HTTPStatus.OK, JSON, json.dumps(_VERSIONS, separators=(",", ":")).encode())


def _cleaned(path: str) -> str:
    """Return the path without empty, `.` and `..` parts."""
    if not path.startswith("/"):
        return path
    cleaned = normpath(path).replace("//", "/")
    return cleaned + "/" if path.endswith(("/", "/.")) and cleaned != "/" else cleaned


def _call(route: Route, request: HttpRequest, response: ResponseWriter) -> PendingResponse | None:
    done_callback = None
    try:
        context = _context(route, request, response)
        if route.method is not None and route.method.interceptor is not None:
            done_callback = call_interceptor(route.method.interceptor, context)
        messages = _Messages(route, request.body)
    except Exception as error:  # noqa: BLE001  every failure is sent to the client
        refusal = as_rpc_error(error, route.path)
        response.reply(refused(refusal))
        if done_callback is not None:
            done_callback(refusal.status)
        return None
    call = JsonCall(route, response, context, done_callback)
    call.begin(iter(messages))
    return call


def _context(route: Route, request: HttpRequest, response: ResponseWriter) -> CallContext:
    method = route.method
    needs_metadata = method is not None and (method.reads_context or method.interceptor is not None)
    metadata = _metadata(request.fields) if needs_metadata else ()
    timeout_s = _timeout_s(request.fields)
    return CallContext(route.path, metadata, response.peer, timeout_s, response.loop.now())


def _timeout_s(fields: Sequence[tuple[bytes, bytes]]) -> float | None:
    for name, value in fields:
        if name == b"grpc-timeout":
            try:
                return parse_timeout(value)
            except ValueError:
                shown = value.decode("latin-1")
                why = f"invalid grpc-timeout: {shown}"
                raise RpcError(Status.INVALID_ARGUMENT, why) from None
    return None


def _metadata(fields: Sequence[tuple[bytes, bytes]]) -> Metadata:
    """Return the fields that are passed to a handler: those that a gRPC client would send."""
    return tuple(
        [
            (name.removeprefix(_METADATA).decode(), value.decode("latin-1"))
            for name, value in fields
            if name.startswith(_METADATA) or name in _FORWARDED
        ]
    )


class _Messages:
    """The messages of a body, with None where other work should run.

    The first of several is parsed immediately, so that it can be refused. If a later one cannot be
    parsed, it counts as the end of the body, because the answer has begun.
    """

    def __init__(self, route: Route, body: bytes) -> None:
        self._route = route
        self._first: bytes | None = None
        self._is_long = len(body) > LONG_BODY_BYTES and not route.takes_many
        self._may_be_deep = body.count(b"{") > MAX_DEPTH
        with self._refusing():
            self._documents = Documents(body)
            if not self._is_long and not self._documents.is_at_end:
                self._first = self._read()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except Unreadable as error:
            # Go's gateway reports an error in a stream of requests as an internal error.
            status = Status.UNKNOWN if self._route.takes_many else Status.INVALID_ARGUMENT
            raise RpcError(status, str(error)) from None

    def _read(self) -> bytes:
        *_, data = self._read_steps()
        assert data is not None
        return data

    def _read_steps(self) -> Iterator[bytes | None]:
        """Parse the next message in steps, and yield it after the last of them."""
        message = self._route.request()
        try:
            for count, _ in enumerate(fill_steps(message, self._documents.read()), 1):
                if count % STEPS_PER_SLICE == 0:
                    yield None
            data = message.SerializeToString()
            if self._may_be_deep:
                self._route.request.FromString(data)
        except (RecursionError, DecodeError):
            raise Unreadable("exceeded max depth") from None
        if len(data) > MAX_MESSAGE_BYTES:
            raise too_large(len(data), MAX_MESSAGE_BYTES)
        yield data

    def __iter__(self) -> Iterator[bytes | None]:
        if self._is_long and not self._documents.is_at_end:
            with self._refusing():
                yield from self._read_steps()
            return
        if not self._route.takes_many:
            yield b"" if self._first is None else self._first
            return
        if self._first is None:
            return
        yield self._first
        try:
            while not self._documents.is_at_end:
                yield self._read()
        except (Unreadable, RpcError):
            return
