"""The demo service on grpcio's server: what it does is right by definition."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from tests.interop import demo
from tests.interop.demo import Failing, Kind, Notes, Pairs, told

THREADS: Final = 32
"""Each call has one for as long as it takes."""

FOR_EVER_S: Final = 1e15
"""What grpcio takes for a call that has no deadline, at least."""

Handler = Callable[..., Any]
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def _pairs(context: Any) -> Pairs:
    return tuple((key, value) for key, value in context.invocation_metadata())


class _Demo:
    """The handlers; those that say many messages are generators."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def echo(self, request: bytes, _: Any) -> bytes:
        return request

    def count(self, request: bytes, context: Any) -> Iterator[bytes]:
        number, size = map(int, request.split())
        try:
            for index in range(number):
                if index:
                    self._notes.write(f"past {index}", _pairs(context))
                yield demo.counted(index, size)
        finally:
            self._notes.write("closed", _pairs(context))

    def add(self, requests: Iterator[bytes], _: Any) -> bytes:
        return b"%d" % sum(map(int, requests))

    def chat(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self._begin(context)
        yield from requests

    def greet(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        context.send_initial_metadata(told(_pairs(context)))
        yield from requests

    def duplex(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        number, size = map(int, next(requests).split())
        heard: list[int] = []
        hearing = threading.Thread(target=lambda: heard.extend(map(len, requests)))
        hearing.start()
        for index in range(number):
            yield demo.counted(index, size)
        hearing.join()
        yield b"%d" % sum(heard)

    def big(self, request: bytes, _: Any) -> bytes:
        return bytes(int(request))

    def timeout(self, _: bytes, context: Any) -> bytes:
        left_s = context.time_remaining()
        return b"none" if left_s is None or left_s > FOR_EVER_S else b"%f" % left_s

    def metadata(self, request: bytes, context: Any) -> bytes:
        context.send_initial_metadata(told(_pairs(context)))
        context.set_trailing_metadata(told(_pairs(context)))
        return request

    def packed(self, _: bytes, context: Any) -> bytes:
        context.set_compression(grpc.Compression.Gzip)
        return demo.PACKED_ANSWER

    def hold(self, request: bytes, _: Any) -> bytes:
        self._notes.say("held", request.decode())
        self._notes.wait("released", request.decode())
        return request

    def sleep(self, asked: Any, context: Any) -> None:
        over = self._begin(context)
        if not isinstance(asked, bytes):
            next(asked)
        self._notes.write("heard", _pairs(context))
        over.wait()

    def fail(self, asked: Any, context: Any) -> Iterator[bytes]:
        failing = Failing.decoded(asked if isinstance(asked, bytes) else next(asked))
        for index in range(failing.after):
            yield demo.counted(index, 0)
        context.set_trailing_metadata(told(_pairs(context)))
        context.abort(_CODES[failing.status], failing.message)

    def leave(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        yield next(requests)

    def _begin(self, context: Any) -> threading.Event:
        """Write down what happens to the call; give what is set when it is over."""
        pairs, over = _pairs(context), threading.Event()

        def end() -> None:
            self._notes.write("cancelled", pairs)
            over.set()

        self._notes.write("begun", pairs)
        if not context.add_callback(end):
            end()
        return over


def _only(handler: Handler) -> Handler:
    """Make a handler of one answer of one that has any number."""

    def answer(asked: Any, context: Any) -> bytes:
        [message] = handler(asked, context)
        assert isinstance(message, bytes)
        return message

    return answer


def _sleeping(handler: Handler) -> Handler:
    def answer(asked: Any, context: Any) -> Iterator[bytes]:
        handler(asked, context)
        yield from ()

    return answer


_MAKE: Final[dict[Kind, Callable[[Handler], Any]]] = {
    Kind.ONE_TO_ONE: grpc.unary_unary_rpc_method_handler,
    Kind.ONE_TO_MANY: grpc.unary_stream_rpc_method_handler,
    Kind.MANY_TO_ONE: grpc.stream_unary_rpc_method_handler,
    Kind.MANY_TO_MANY: grpc.stream_stream_rpc_method_handler,
}


def _handlers(notes: Notes) -> dict[str, Any]:
    service = _Demo(notes)
    single: dict[str, tuple[Kind, Handler]] = {
        demo.ECHO: (Kind.ONE_TO_ONE, service.echo),
        demo.LATER: (Kind.ONE_TO_ONE, service.echo),
        demo.COUNT: (Kind.ONE_TO_MANY, service.count),
        demo.SUM: (Kind.MANY_TO_ONE, service.add),
        demo.CHAT: (Kind.MANY_TO_MANY, service.chat),
        demo.GREET: (Kind.MANY_TO_MANY, service.greet),
        demo.DUPLEX: (Kind.MANY_TO_MANY, service.duplex),
        demo.BIG: (Kind.ONE_TO_ONE, service.big),
        demo.TIMEOUT: (Kind.ONE_TO_ONE, service.timeout),
        demo.METADATA: (Kind.ONE_TO_ONE, service.metadata),
        demo.PACKED: (Kind.ONE_TO_ONE, service.packed),
    }
    for held in (demo.HOLD, demo.HOLD_LATER):
        single[held] = (Kind.ONE_TO_ONE, service.hold)
    for kind in Kind:
        sleep = _sleeping(service.sleep) if kind.answers_many else service.sleep
        fail = service.fail if kind.answers_many else _only(service.fail)
        leave = service.leave if kind.answers_many else _only(service.leave)
        single[demo.path(demo.SLEEP, kind)] = (kind, sleep)
        single[demo.path(demo.FAIL, kind)] = (kind, fail)
        single[demo.path(demo.QUIT, kind)] = (kind, leave)
    return {
        path.rpartition("/")[2]: _MAKE[kind](handler) for path, (kind, handler) in single.items()
    }


class GrpcioServer:
    """The demo service, on a port of its own, with threads of its own."""

    def __init__(self, port: int = 0, *, tls: grpc.ServerCredentials | None = None) -> None:
        self.notes = Notes()
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", 2 * 1024 * 1024),
        ]
        self._server = grpc.server(ThreadPoolExecutor(THREADS), options=options)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(demo.SERVICE, _handlers(self.notes)),)
        )
        address = f"127.0.0.1:{port}"
        if tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, tls)
        self._server.start()

    @property
    def target(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End, whatever is under way."""
        assert self._server.stop(0).wait(demo.DEADLINE_S)
