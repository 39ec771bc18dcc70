"""The page `/health`, in etcd's format: whether the server works.

It does not work if a commit has failed, if the disk has not taken a change for too long, or if an
alarm is raised.
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from leasehold.grpc.http_handlers import Reply
from leasehold.server.etcd.alarms import Alarms

CONTENT_TYPE: Final = "text/plain; charset=utf-8"

MAX_QUERY_CHARS: Final = 256
"""The part of a query that is parsed: there are two kinds of alarms."""


UNHEALTHY_AFTER_S: Final = 10.0
"""How long a change may wait for the disk, by default: longer than the pauses of a disk that
works, shorter than an operator should have to wait."""


class HealthPage:
    """Reports whether a server works, and counts its answers.

    `failure` returns why the server has stopped, if it has; `outstanding_s` how long the oldest
    change has waited for the disk.
    """

    def __init__(
        self,
        alarms: Alarms,
        failure: Callable[[], BaseException | None],
        outstanding_s: Callable[[], float],
        unhealthy_after_s: float = UNHEALTHY_AFTER_S,
    ) -> None:
        self._alarms = alarms
        self._failure = failure
        self._outstanding_s = outstanding_s
        self._unhealthy_after_s = unhealthy_after_s
        self.successes = 0
        self.failures = 0

    def page(self, query: str) -> Reply:
        """Answer; `exclude=NOSPACE` in the query ignores the alarms of that kind."""
        excluded = parse_qs(query[:MAX_QUERY_CHARS]).get("exclude", [])
        reason = self._trouble() or self._alarms.reason(excluded)
        body = json.dumps(
            {"health": str(not reason).lower(), "reason": reason}, separators=(",", ":")
        )
        if reason:
            self.failures += 1
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, CONTENT_TYPE, f"{body}\n".encode())
        self.successes += 1
        return Reply(HTTPStatus.OK, CONTENT_TYPE, body.encode())

    def _trouble(self) -> str:
        failure = self._failure()
        if failure is not None:
            return str(failure)
        outstanding_s = self._outstanding_s()
        if outstanding_s < self._unhealthy_after_s:
            return ""
        return f"a commit has been outstanding for {outstanding_s:.1f} s: the disk does not respond"
