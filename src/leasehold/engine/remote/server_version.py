"""The kind and version of a server: Leasehold, or etcd."""

import logging
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from leasehold.engine.remote.caller import STATUS, Caller
from leasehold.engine.values import (
    EXACT_EXPIRY,
    LEASE_LISTING,
    RENEW_ALL,
    Features,
    Limits,
)
from leasehold.errors import CallRefused
from leasehold.wire import leases_pb2
from leasehold.wire import maintenance_pb2 as maintenance

logger = logging.getLogger(__name__)

RENEW_ALL_METHOD: Final = "/leasehold.v1.Leases/RenewAll"

Version = tuple[int, int, int]

PROGRESS_TRUSTED_FROM: Final[dict[tuple[int, int], int]] = {(3, 4): 25, (3, 5): 8}
"""The patch from which on progress is never ahead of events; newer minors are all correct."""

READS_IN_TXN_FROM: Final[dict[tuple[int, int], int]] = {(3, 4): 20, (3, 5): 5}
"""The patch from which on a member survives the cancellation of a read-only transaction (etcd's
issue 14110); newer minors do."""

DEPOSED_RENEWS_BEFORE: Final[dict[tuple[int, int], int]] = {(3, 5): 20}
"""The patch before which a deposed leader, before it detects that, renews leases."""
_LAST_WITH_DEPOSED: Final = (3, 5)

ETCD_LIMITS: Final = Limits(min_ttl=2.0, ttl_unit=1.0)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class ServerInfo(NamedTuple):
    """A server that answers."""

    is_leasehold: bool
    version: str
    """The version of etcd's API that it reports."""
    engine: str = ""
    """Of a Leasehold server that has its state in an etcd cluster: the URL of the cluster."""

    @property
    def limits(self) -> Limits:
        """Its limits."""
        return Limits() if self.is_leasehold and not self.engine else ETCD_LIMITS

    @property
    def features(self) -> Features:
        """Its features beyond etcd."""
        if not self.is_leasehold:
            return Features()
        if self.engine:
            return Features(frozenset({RENEW_ALL}))
        return Features(frozenset({EXACT_EXPIRY, RENEW_ALL, LEASE_LISTING}))

    @property
    def trusts_progress(self) -> bool:
        """Whether a watch may continue from the revision of its progress."""
        return self._is_from(PROGRESS_TRUSTED_FROM)

    @property
    def reads_in_txns(self) -> bool:
        """Whether it is safe against read-only transactions."""
        return self._is_from(READS_IN_TXN_FROM)

    def _is_from(self, oldest: Mapping[tuple[int, int], int]) -> bool:
        """Return whether it is ours, or an etcd with these patches."""
        number = version_of(self.version)
        if self.is_leasehold or number is None:
            return self.is_leasehold
        minor, patch = number[:2], number[2]
        return patch >= oldest[minor] if minor in oldest else minor > max(oldest)

    @property
    def may_renew_when_deposed(self) -> bool:
        """Whether a deposed leader may renew a lease that the new one ends."""
        number = version_of(self.version)
        if self.is_leasehold or number is None:
            return False
        minor, patch = number[:2], number[2]
        return minor < _LAST_WITH_DEPOSED or patch < DEPOSED_RENEWS_BEFORE.get(minor, 0)

    def __str__(self) -> str:
        if self.engine:
            return f"Leasehold on {self.engine} (etcd {self.version})"
        return "Leasehold" if self.is_leasehold else f"etcd {self.version}"


def version_of(text: str) -> Version | None:
    """Parse a version, such as 3.5.1; None if it is invalid."""
    found = _VERSION.match(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


async def ask_version(caller: Caller) -> str:
    """Return the version of the server that is connected to now."""
    version: str = (await _ask_status(caller)).version
    return version


async def _ask_status(caller: Caller) -> maintenance.StatusResponse:
    return await caller.ask(
        STATUS, maintenance.StatusRequest(), maintenance.StatusResponse, idempotent=True
    )


async def recognize(caller: Caller) -> ServerInfo:
    """Return the kind and version of the server."""
    status = await _ask_status(caller)
    try:
        none = leases_pb2.RenewAllRequest()
        await caller.ask(RENEW_ALL_METHOD, none, leases_pb2.RenewAllResponse, idempotent=True)
    except CallRefused:  # it does not have the method
        server = ServerInfo(is_leasehold=False, version=status.version)
    else:
        server = ServerInfo(True, status.version, status.leasehold_engine)
    if server.may_renew_when_deposed:
        logger.warning(
            "%s: a deposed leader may confirm the renewal of a lease that the new leader ends; "
            "use etcd 3.5.20 or later",
            server,
        )
    return server
