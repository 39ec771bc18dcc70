"""What is behind an address: a Leasehold server, or etcd, and which one."""

import logging
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from leasehold.engine.remote.caller import Caller
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

STATUS: Final = "/etcdserverpb.Maintenance/Status"
RENEW_ALL_METHOD: Final = "/leasehold.v1.Leases/RenewAll"

Version = tuple[int, int, int]

PROGRESS_TRUSTED_FROM: Final[dict[tuple[int, int], int]] = {(3, 4): 25, (3, 5): 8}
"""The patch from which on progress is never told ahead of events; newer minors have it all."""

READS_IN_TXN_FROM: Final[dict[tuple[int, int], int]] = {(3, 4): 20, (3, 5): 5}
"""The patch from which on a member survives that the caller of a transaction goes away which only
reads (etcd's issue 14110); newer minors do."""

DEPOSED_RENEWS_BEFORE: Final[dict[tuple[int, int], int]] = {(3, 5): 20}
"""The patch before which a leader that was deposed, and does not know, renews leases."""
_LAST_WITH_DEPOSED: Final = (3, 5)

ETCD_LIMITS: Final = Limits(min_ttl=2.0, ttl_unit=1.0)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class Server(NamedTuple):
    """What answers."""

    is_leasehold: bool
    version: str
    """Of etcd's API: what it says of itself."""

    @property
    def limits(self) -> Limits:
        """What it can take."""
        return Limits() if self.is_leasehold else ETCD_LIMITS

    @property
    def features(self) -> Features:
        """What it has beyond etcd."""
        if not self.is_leasehold:
            return Features()
        return Features(frozenset({EXACT_EXPIRY, RENEW_ALL, LEASE_LISTING}))

    @property
    def trusts_progress(self) -> bool:
        """Whether a watch may go on from where its progress says that it is."""
        return self._is_from(PROGRESS_TRUSTED_FROM)

    @property
    def reads_in_txns(self) -> bool:
        """Whether a transaction that only reads can do it no harm."""
        return self._is_from(READS_IN_TXN_FROM)

    def _is_from(self, oldest: Mapping[tuple[int, int], int]) -> bool:
        """Say whether it is ours, or an etcd with what came with these patches."""
        number = version_of(self.version)
        if self.is_leasehold or number is None:
            return self.is_leasehold
        minor, patch = number[:2], number[2]
        return patch >= oldest[minor] if minor in oldest else minor > max(oldest)

    @property
    def may_renew_when_deposed(self) -> bool:
        """Whether a leader that was deposed may renew a lease that the new one ends."""
        number = version_of(self.version)
        if self.is_leasehold or number is None:
            return False
        minor, patch = number[:2], number[2]
        return minor < _LAST_WITH_DEPOSED or patch < DEPOSED_RENEWS_BEFORE.get(minor, 0)

    def __str__(self) -> str:
        return "Leasehold" if self.is_leasehold else f"etcd {self.version}"


def version_of(text: str) -> Version | None:
    """Read a version, such as 3.5.1; None if it is none."""
    found = _VERSION.match(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


async def ask_version(caller: Caller) -> str:
    """Ask the server that is connected to now for its version."""
    status = await caller.ask(
        STATUS, maintenance.StatusRequest(), maintenance.StatusResponse, idempotent=True
    )
    version: str = status.version
    return version


async def recognize(caller: Caller) -> Server:
    """Ask who it is."""
    version = await ask_version(caller)
    try:
        none = leases_pb2.RenewAllRequest()
        await caller.ask(RENEW_ALL_METHOD, none, leases_pb2.RenewAllResponse, idempotent=True)
    except CallRefused:  # it does not know the method
        server = Server(is_leasehold=False, version=version)
    else:
        server = Server(is_leasehold=True, version=version)
    if server.may_renew_when_deposed:
        logger.warning(
            "%s: a leader that was deposed and does not know yet may renew a lease that the new "
            "leader ends; 3.5.20 and later do not",
            server,
        )
    return server
