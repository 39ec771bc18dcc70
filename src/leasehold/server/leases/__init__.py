"""`leasehold.v1.Leases`: leases in milliseconds, many at a time, listed and watched."""
