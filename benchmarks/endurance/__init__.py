"""Thousands of connections, leases and watchers for ten minutes: nothing lost, nothing that grows.

Run it with `python -m benchmarks.endurance`; `docs/benchmarks-endurance.md` has the last results.
"""
