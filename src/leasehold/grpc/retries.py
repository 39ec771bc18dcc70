"""Retrying a call, and when it must not be retried.

The failure of an attempt decides:

    NotProcessed      it was not executed: up to `MAX_ATTEMPTS` times, until the deadline
    ConnectionLost    it may have been: only if the caller declares it idempotent
    anything else     never

Once a call may have been executed, its caller gets that error in the end, however later attempts
fail.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.errors import ConnectFailed, ConnectionLost
from leasehold.grpc.call_context import Metadata
from leasehold.grpc.call_dispatch import CallDispatcher
from leasehold.grpc.client_call import NotProcessed
from leasehold.grpc.client_headers import MIN_TIMEOUT_S
from leasehold.grpc.client_protocol import ClientProtocol

Prepare = Callable[[], Awaitable[None]]

MAX_ATTEMPTS: Final = 5
"""How often a call is attempted that was not executed, or that may be executed twice."""

REFUSED: Final = exponential(0.01, 1.0)
"""The waits after a server has refused a call: it may have too many."""


@dataclass(kw_only=True)
class Attempts:
    """A unary call whose first attempt failed, or that has to wait for a connection."""

    dispatcher: CallDispatcher
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
    """Awaited before each attempt, except one on the connection that exists when a call begins."""
    _unknown: ConnectionLost | None = None
    """The failure of the attempt that may have been executed."""

    async def go_on(
        self, connection: ClientProtocol | None, failure: NotProcessed | ConnectionLost | None
    ) -> bytes:
        """Make the call, after its first attempt has failed on a connection, if there was one."""
        backoff = Backoff(REFUSED, self.random)
        for _ in range(MAX_ATTEMPTS if failure is None else MAX_ATTEMPTS - 1):
            if failure is not None:
                self._check(failure)
                if (
                    connection is not None and connection.is_ready
                ):  # the server refuses calls, and is connected
                    why = str(failure)
                    await self.dispatcher.pause(
                        self.path, backoff.next_s(), self.until, self.timeout_s, why
                    )
            connection = await self._connection()
            if self.prepare is not None:
                await self.prepare()
            if not connection.is_ready:
                failure = NotProcessed(connection.why)
                continue
            try:
                return await self._attempt(connection)
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

    async def _connection(self) -> ClientProtocol:
        try:
            return await self.dispatcher.connection(
                self.path, self.until, self.timeout_s, wait_for_ready=self.wait_for_ready
            )
        except ConnectFailed as error:
            if self._unknown is None:
                raise
            raise ConnectionLost(f"{self.path}: {self._unknown}; then: {error}") from None

    async def _attempt(self, connection: ClientProtocol) -> bytes:
        left_s = self.server_timeout_s
        if left_s is None and self.until is not None:
            left_s = max(MIN_TIMEOUT_S, self.until - self.dispatcher.now())
        fields = connection.heads.get(self.path, left_s, self.metadata)
        return await self.dispatcher.attempt(
            connection, fields, self.message, self.until, self.timeout_s
        )

    def _given_up(self, failure: NotProcessed | ConnectionLost) -> NotProcessed | ConnectionLost:
        if self._unknown is not None or isinstance(failure, ConnectionLost):
            return ConnectionLost(f"{self.path}: {self._unknown}; then: {failure}")
        return NotProcessed(f"{self.path} was tried {MAX_ATTEMPTS} times; {failure.message}")
