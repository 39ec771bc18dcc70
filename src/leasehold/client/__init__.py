"""The client: leases, keys and watches, on whichever engine there is."""
