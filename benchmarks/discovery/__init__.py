"""The benchmark of the discovery service: events to 10,000 registrations, and their memory.

Run it with `make bench`, or `python -m benchmarks.discovery --help`. `docs/benchmarks-discovery.md`
describes what is measured and how, and holds the last results.
"""
