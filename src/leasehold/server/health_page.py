"""The page `/health`: whether the server serves, and no alarm is raised, as etcd answers it."""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from leasehold.rpc.pages import Reply
from leasehold.server.etcd.alarms import Alarms

CONTENT_TYPE: Final = "text/plain; charset=utf-8"

MAX_QUERY_CHARS: Final = 256
"""Of a query, as much is read: there are two kinds of alarms."""


class HealthPage:
    """Says how a server is, and how often it was well. `failure` gives why it has stopped."""

    def __init__(self, alarms: Alarms, failure: Callable[[], BaseException | None]) -> None:
        self._alarms = alarms
        self._failure = failure
        self.successes = 0
        self.failures = 0

    def page(self, query: str) -> Reply:
        """Answer; `exclude=NOSPACE` in the query leaves the alarms of that kind out."""
        failure = self._failure()
        excluded = parse_qs(query[:MAX_QUERY_CHARS]).get("exclude", [])
        reason = self._alarms.reason(excluded) if failure is None else str(failure)
        body = json.dumps(
            {"health": str(not reason).lower(), "reason": reason}, separators=(",", ":")
        )
        if reason:
            self.failures += 1
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, CONTENT_TYPE, f"{body}\n".encode())
        self.successes += 1
        return Reply(HTTPStatus.OK, CONTENT_TYPE, body.encode())
