"""Permits: rights of subjects on resources, for as long as a lease lasts."""

from leasehold.locks.permits.permit import Permit
from leasehold.locks.permits.permits import Permits

__all__ = ["Permit", "Permits"]
