"""Leases that are renewed while their holder lives, and the session of a client."""
