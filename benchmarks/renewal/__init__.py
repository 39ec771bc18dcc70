"""The benchmark of the renewal service: 100,000 leases of 60 s, in batches and one by one.

Run it with `make bench`, or `python -m benchmarks.renewal --help`. `docs/benchmarks-renewal.md`
describes what is measured and how, and holds the last results.
"""
