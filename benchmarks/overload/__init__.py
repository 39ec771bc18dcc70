"""Twice as many Puts as our server can bear, for minutes: what becomes of leases, reads and memory.

Run it with `python -m benchmarks.overload`; `docs/benchmarks-overload.md` has the last results.
"""
