"""Making a call again, and when that must not be.

What is known of a call that has failed decides:

    NotProcessed      it was not executed: up to `MAX_ATTEMPTS` times, as long as there is time
    ConnectionLost    it may have been: only if the caller says that this does no harm
    anything else     never

Once a call may have been executed, that is what its caller is told in the end, whatever has become
of later attempts.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from leasehold.errors import ConnectFailed, ConnectionLost
from leasehold.rpc.backoff import Backoff
from leasehold.rpc.client_call import NotProcessed
from leasehold.rpc.client_protocol import ClientProtocol
from leasehold.rpc.metadata import Metadata
from leasehold.rpc.request_heads import MIN_TIMEOUT_S
from leasehold.rpc.switchboard import Switchboard

Prepare = Callable[[], Awaitable[None]]

MAX_ATTEMPTS: Final = 5
"""How often a call is made that was not executed, or that may be executed twice."""

REFUSED_BASE_S: Final = 0.01
REFUSED_MAX_S: Final = 1.0
"""The pauses after a server has refused a call: it has too many, say."""


@dataclass(slots=True, kw_only=True)
class Attempts:
    """A unary call that is not done with its first attempt, or has to wait for that."""

    board: Switchboard
    path: str
    message: bytes
    metadata: Metadata | None
    until: float | None
    timeout_s: float | None
    server_timeout_s: float | None
    wait_for_ready: bool
    idempotent: bool
    random: Random
    prepare: Prepare | None = None
    """Awaited before each attempt but one on the connection that is there when a call begins."""
    _unknown: ConnectionLost | None = None
    """How the attempt failed that may have been executed."""

    async def go_on(
        self, line: ClientProtocol | None, failure: NotProcessed | ConnectionLost | None
    ) -> bytes:
        """Make the call, after its first attempt has failed on a line, if there was one."""
        backoff = Backoff(self.random, REFUSED_BASE_S, REFUSED_MAX_S)
        for _ in range(MAX_ATTEMPTS if failure is None else MAX_ATTEMPTS - 1):
            if failure is not None:
                self._check(failure)
                if line is not None and line.is_ready:  # it refuses calls, and is there
                    why = str(failure)
                    await self.board.pause(
                        self.path, backoff.next_s(), self.until, self.timeout_s, why
                    )
            line = await self._line()
            if self.prepare is not None:
                await self.prepare()
            if not line.is_ready:
                failure = NotProcessed(line.why)
                continue
            try:
                return await self._attempt(line)
            except (NotProcessed, ConnectionLost) as error:
                failure = error
        assert failure is not None
        self._check(failure)
        raise self._given_up(failure)

    def _check(self, failure: NotProcessed | ConnectionLost) -> None:
        """Raise a failure that does not allow another attempt."""
        if isinstance(failure, ConnectionLost):
            if not self.idempotent:
                raise ConnectionLost(f"{self.path}: {failure}") from None
            self._unknown = failure

    async def _line(self) -> ClientProtocol:
        try:
            return await self.board.line(
                self.path, self.until, self.timeout_s, wait_for_ready=self.wait_for_ready
            )
        except ConnectFailed as error:
            if self._unknown is None:
                raise
            raise ConnectionLost(f"{self.path}: {self._unknown}; then: {error}") from None

    async def _attempt(self, line: ClientProtocol) -> bytes:
        left_s = self.server_timeout_s
        if left_s is None and self.until is not None:
            left_s = max(MIN_TIMEOUT_S, self.until - self.board.now())
        fields = line.heads.get(self.path, left_s, self.metadata)
        return await self.board.attempt(line, fields, self.message, self.until, self.timeout_s)

    def _given_up(self, failure: NotProcessed | ConnectionLost) -> NotProcessed | ConnectionLost:
        if self._unknown is not None or isinstance(failure, ConnectionLost):
            return ConnectionLost(f"{self.path}: {self._unknown}; then: {failure}")
        return NotProcessed(f"{self.path} was tried {MAX_ATTEMPTS} times; {failure.message}")
