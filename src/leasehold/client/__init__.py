"""The client: leases, keys and watches, on any engine."""
