"""Leases: policies, lease time, expiry, the lease table, `Lease` and `RenewalManager`."""
