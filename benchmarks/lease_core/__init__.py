"""The benchmark of the lease core: cost per operation, memory, expiry, rebuilds, renewal manager.

Run it with `make bench`, or `python -m benchmarks.lease_core --help`. `docs/benchmarks-leases.md`
describes what is measured and how, and has the last results.
"""
