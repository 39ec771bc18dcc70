"""Health checks, which the process that registers a service makes.

The health of a service is PASSING or FAILING, after a number of checks in a row that have failed or
were good. One that has been failing for long is *withdrawn*: it is not registered until it passes
again. In MAINTENANCE checks are made and counted, and have no effect before it ends.

`HealthState` has these rules and is pure. The checks are HTTP, TCP, gRPC's health service, a
command, and any coroutine function; each is bounded in time.
"""

import asyncio
import logging
import os
import shlex
import signal
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import partial
from random import Random
from typing import Final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError

from leasehold.basics.addresses import MAX_PORT, TcpAddress, parse_address
from leasehold.basics.durations import NEVER, Forever, check_seconds
from leasehold.basics.event_loop import is_cancelled
from leasehold.basics.tls import client_tls
from leasehold.errors import LeaseholdError
from leasehold.grpc.channel import Channel
from leasehold.grpc.endpoints import plain_words
from leasehold.registry.state import Health
from leasehold.wire.health_pb2 import HealthCheckRequest, HealthCheckResponse

logger = logging.getLogger(__name__)

FAIL_AFTER: Final = 3
"""Checks in a row that fail before a service is failing."""

PASS_AFTER: Final = 2
"""Checks in a row that are good before a failing service is passing."""

WITHDRAW_AFTER_S: Final = 600.0
"""How long a service is failing before it is withdrawn."""

INTERVAL_S: Final = 10.0
TIMEOUT_S: Final = 5.0

MAX_LINE_BYTES: Final = 4 * 1024
"""The first line of an HTTP answer; nothing more is read."""

KILL_S: Final = 1.0
"""How long to wait for a command that was killed."""


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a service is failing, passing and withdrawn."""

    fail_after: int = FAIL_AFTER
    pass_after: int = PASS_AFTER
    withdraw_after_s: float = WITHDRAW_AFTER_S
    """`NEVER` to keep it registered however long it is failing."""

    def __post_init__(self) -> None:
        for name in ("fail_after", "pass_after"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.withdraw_after_s > 0:
            raise ValueError(f"withdraw_after_s must be more than 0, got {self.withdraw_after_s!r}")


class HealthState:
    """The health of one service. Times are readings of any one clock, in seconds."""

    __slots__ = ("_failing_since", "_row", "_rules", "in_maintenance")

    def __init__(self, rules: HealthRules, now: float, start: Health = Health.PASSING) -> None:
        self._rules = rules
        self._row = 0
        """Outcomes in a row that contradict the present health."""
        self._failing_since = NEVER if start is Health.PASSING else now
        self.in_maintenance = start is Health.MAINTENANCE
        if self.in_maintenance:
            self._failing_since = NEVER

    def checked(self, now: float, *, is_good: bool) -> None:
        """Record the outcome of a check."""
        is_passing = self._failing_since == NEVER
        if is_good is is_passing:
            self._row = 0
            return
        self._row += 1
        needed = self._rules.fail_after if is_passing else self._rules.pass_after
        if self._row >= needed:
            self._row = 0
            self._failing_since = now if is_passing else NEVER

    def health(self) -> Health:
        """Return the present health."""
        if self.in_maintenance:
            return Health.MAINTENANCE
        return Health.PASSING if self._failing_since == NEVER else Health.FAILING

    def is_withdrawn(self, now: float) -> bool:
        """Return whether it has been failing for too long. Not in maintenance."""
        return not self.in_maintenance and now >= self.withdrawn_at

    @property
    def withdrawn_at(self) -> float:
        """When it will be withdrawn if it does not pass before; `NEVER` if it is passing."""
        if self._failing_since == NEVER:
            return NEVER
        return self._failing_since + self._rules.withdraw_after_s


# Checks.


class CheckFailed(Exception):
    """A check has failed; the text is the reason."""


@dataclass(frozen=True)
class HealthCheck(ABC):
    """A check of a service, made every `interval` seconds; it may take `timeout` seconds.

    A service is registered as `start`, and stays so until enough checks contradict it.
    """

    _: KW_ONLY
    interval: float | timedelta = INTERVAL_S
    timeout: float | timedelta = TIMEOUT_S
    fail_after: int = FAIL_AFTER
    pass_after: int = PASS_AFTER
    withdraw_after: float | timedelta | Forever = WITHDRAW_AFTER_S
    start: Health = Health.PASSING

    def __post_init__(self) -> None:
        self._check_target()
        check_seconds(self.interval, "interval")
        check_seconds(self.timeout, "timeout")
        if not isinstance(self.start, Health):
            raise TypeError(f"start must be a Health, such as Health.FAILING, not {self.start!r}")
        self.rules()

    def rules(self) -> HealthRules:
        """Return when the service is failing, passing and withdrawn."""
        after = self.withdraw_after
        after_s = NEVER if isinstance(after, Forever) else check_seconds(after, "withdraw_after")
        return HealthRules(self.fail_after, self.pass_after, after_s)

    @abstractmethod
    def _check_target(self) -> None:
        """Raise ValueError if the target of the check is malformed."""

    @abstractmethod
    async def probe(self) -> None:
        """Make the check. Raises `CheckFailed`, or any other exception, if the service is bad."""

    async def make(self) -> str:
        """Make the check within its timeout; return why it has failed, or an empty text."""
        limit_s = check_seconds(self.timeout, "timeout")
        try:
            async with asyncio.timeout(limit_s):
                await self.probe()
        except TimeoutError:
            return f"no answer within {limit_s:g} s"
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return "something that the check awaited was cancelled"
        except Exception as error:  # noqa: BLE001  whatever a check raises, it has failed
            return _why(error)
        return ""


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, LeaseholdError):
        name = f"{error.filename}: " if error.filename else ""
        return name + plain_words(error)
    return str(error) or type(error).__name__


@dataclass(frozen=True)
class HttpCheck(HealthCheck):
    """A GET request to a URL, which must be answered with a status from 200 to 299.

    `tls` is for https, by default with the authorities of this system. Redirects are not followed.
    """

    url: str
    _: KW_ONLY
    tls: ssl.SSLContext | None = None

    def _check_target(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"url must be an http or https URL with a host, got {self.url!r}")
        if not self.url.isascii() or any(c.isspace() or not c.isprintable() for c in self.url):
            raise ValueError(f"url must be printable ASCII without spaces, got {self.url!r}")
        try:
            _ = parts.port
        except ValueError:
            raise ValueError(f"url must have a port of 0 to {MAX_PORT}, got {self.url!r}") from None

    async def probe(self) -> None:
        parts = urlsplit(self.url)
        has_tls = parts.scheme == "https"
        tls = (self.tls or ssl.create_default_context()) if has_tls else None
        port = parts.port or (443 if has_tls else 80)
        reader, writer = await asyncio.open_connection(
            parts.hostname, port, ssl=tls, limit=MAX_LINE_BYTES
        )
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            host = parts.netloc.rpartition("@")[2]
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
                "User-Agent: leasehold-check\r\nAccept: */*\r\n\r\n".encode()
            )
            line = await reader.readline()  # at most the limit of the reader
            words = line.split(maxsplit=2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise CheckFailed(f"answer must begin with an HTTP/1.1 status, got {line[:64]!r}")
            status = int(words[1])
            if not 200 <= status < 300:
                raise CheckFailed(f"HTTP status {status}")
        finally:
            writer.transport.abort()  # an orderly end of TLS would wait for the other side


@dataclass(frozen=True)
class TcpCheck(HealthCheck):
    """A TCP connection to an address, such as 127.0.0.1:5432, which must be accepted."""

    address: str

    def _check_target(self) -> None:
        if not isinstance(parse_address(self.address), TcpAddress):
            raise ValueError(f"address must be host:port, got {self.address!r}")

    async def probe(self) -> None:
        parsed = parse_address(self.address)
        assert isinstance(parsed, TcpAddress), "it was checked"
        _, writer = await asyncio.open_connection(parsed.host, parsed.port)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@dataclass(frozen=True)
class GrpcCheck(HealthCheck):
    """The health service of gRPC at an address; `service` is empty for the server as a whole."""

    address: str
    service: str = ""
    _: KW_ONLY
    tls: ssl.SSLContext | None = None

    def _check_target(self) -> None:
        parse_address(self.address)

    async def probe(self) -> None:
        request = HealthCheckRequest(service=self.service).SerializeToString()
        channel = Channel(self.address, tls=self.tls, keepalive=None)
        try:
            answer = await channel.unary(
                "/grpc.health.v1.Health/Check", request, timeout=check_seconds(self.timeout, "")
            )
        finally:
            await channel.close()
        try:
            status = HealthCheckResponse.FromString(answer).status
        except DecodeError as error:
            raise CheckFailed(f"invalid answer from the health service: {error}") from None
        if status != HealthCheckResponse.SERVING:
            names = HealthCheckResponse.DESCRIPTOR.enum_types_by_name["ServingStatus"]
            shown = names.values_by_number.get(status)
            raise CheckFailed(f"health status {status if shown is None else shown.name}")


@dataclass(frozen=True)
class CommandCheck(HealthCheck):
    """A command, which must end with exit code 0. It and its children are killed at the timeout."""

    command: Sequence[str]

    def _check_target(self) -> None:
        if isinstance(self.command, str) or not self.command:
            raise ValueError(f"command must be a list of words, got {self.command!r}")

    async def probe(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await process.wait()
        if code != 0:
            raise CheckFailed(f"exit code {code}" if code > 0 else f"killed by signal {-code}")


@dataclass(frozen=True)
class FunctionCheck(HealthCheck):
    """A coroutine function, which must return and not return False."""

    function: Callable[[], Awaitable[object]]

    def _check_target(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be a coroutine function, not {self.function!r}")

    async def probe(self) -> None:
        if await self.function() is False:
            raise CheckFailed("the function has returned False")


def parse_check(
    text: str, *, interval: float = INTERVAL_S, timeout: float = TIMEOUT_S
) -> HealthCheck:
    """Return a check out of its text.

    `http://...` and `https://...` are URLs; `tcp://host:port` and `grpc://host:port[/service]` are
    addresses, `grpcs://` with TLS; `exec:command` is a command with its arguments.
    """
    scheme, _, rest = text.partition(":")
    made = partial(_made, interval=interval, timeout=timeout)
    match scheme:
        case "http" | "https":
            return made(HttpCheck, text)
        case "tcp":
            address = rest.removeprefix("//")
            _check_address(TcpCheck, address, text, "tcp://HOST:PORT, such as tcp://127.0.0.1:5432")
            return made(TcpCheck, address)
        case "grpc" | "grpcs":
            address, _, service = rest.removeprefix("//").partition("/")
            form = f"{scheme}://HOST:PORT[/SERVICE], such as {scheme}://127.0.0.1:50051"
            _check_address(GrpcCheck, address, text, form)
            tls = client_tls() if scheme == "grpcs" else None
            return made(GrpcCheck, f"https://{address}" if tls else address, service, tls=tls)
        case "exec":
            return made(CommandCheck, _words(text, rest))
    raise ValueError(
        f"check must begin with http://, https://, tcp://, grpc://, grpcs:// or exec:, got {text!r}"
    )


def _check_address(kind: type[TcpCheck | GrpcCheck], address: str, text: str, form: str) -> None:
    """Raise `ValueError` with the text of a check if its address is malformed."""
    message = f"check must be {form}, got {text!r}"
    if not address:
        raise ValueError(message)
    try:
        kind(address)
    except ValueError as error:
        raise ValueError(f"{message}: {error}") from None


def _words(text: str, rest: str) -> tuple[str, ...]:
    form = f"check must have a command after exec:, such as exec:pg_isready, got {text!r}"
    try:
        words = tuple(shlex.split(rest))
    except ValueError as error:
        raise ValueError(f"{form}: {error}") from None
    if not words:
        raise ValueError(form)
    return words


def _made(kind: Callable[..., HealthCheck], *arguments: object, **options: object) -> HealthCheck:
    return kind(*arguments, **options)


class HealthMonitor:
    """Makes the checks of one service, and reports each change of its health."""

    def __init__(
        self,
        check: HealthCheck | None,
        changed: Callable[[Health, bool], object],
        *,
        random: Random,
    ) -> None:
        """`changed(health, is_withdrawn)` is called after each change. None: it is PASSING.

        It is also called when a service that starts as FAILING has failed as many checks as make
        one failing.
        """
        self._check = check
        self._changed = changed
        self._random = random
        loop = asyncio.get_running_loop()
        rules = HealthRules() if check is None else check.rules()
        start = Health.PASSING if check is None else check.start
        self._now = loop.time
        self._state = HealthState(rules, self._now(), start)
        self._reported: tuple[Health, bool] | None = self._present()
        self._failures_left = rules.fail_after if start is Health.FAILING else 0
        """Failed checks before a service that has been failing from the start is reported."""
        self.last_error = ""
        """Why the last check has failed; empty if it was good."""

    @property
    def health(self) -> Health:
        """The present health."""
        return self._state.health()

    def maintain(self, *, is_on: bool) -> None:
        """Begin or end maintenance."""
        self._state.in_maintenance = is_on
        self._report()

    async def run(self) -> None:
        """Make the checks, until it is cancelled; without a check, return."""
        if self._check is None:
            return
        interval_s = check_seconds(self._check.interval, "interval")
        while True:
            why = await self._check.make()
            if why and not self.last_error:
                logger.info("a health check failed: %s", why)
            self.last_error = why
            self._state.checked(self._now(), is_good=not why)
            self._count_failures(why)
            self._report()
            # The wait has jitter, so that the checks of many services do not coincide.
            await self._wait_until(self._now() + interval_s * self._random.uniform(0.9, 1.1))

    async def _wait_until(self, next_at: float) -> None:
        """Wait for the next check; the time to withdraw the service may come before."""
        at = 0.0
        while at < next_at:
            now, withdrawn_at = self._now(), self._state.withdrawn_at
            at = withdrawn_at if now < withdrawn_at < next_at else next_at
            await asyncio.sleep(at - now)
            self._report()

    def _count_failures(self, why: str) -> None:
        """Have a service reported that was to be failing only until its first checks."""
        if not self._failures_left or self.health is not Health.FAILING:
            self._failures_left = 0
        elif why:
            self._failures_left -= 1
            if not self._failures_left:
                self._reported = None

    def _present(self) -> tuple[Health, bool]:
        return self._state.health(), self._state.is_withdrawn(self._now())

    def _report(self) -> None:
        present = self._present()
        if present != self._reported:
            self._reported = present
            self._changed(*present)
