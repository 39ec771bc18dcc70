"""Files with one writer at a time, on any storage: namespace, leases, replicas and recovery."""

from leasehold.files.lease_manager import LeaseManager, WriteLease

__all__ = ["LeaseManager", "WriteLease"]
