"""Permits: who may do what, for as long as a lease lasts."""

from leasehold.recipes.permits.permit import Permit
from leasehold.recipes.permits.permits import Permits

__all__ = ["Permit", "Permits"]
