"""The renewal service: it keeps the leases of clients alive while these are absent."""
