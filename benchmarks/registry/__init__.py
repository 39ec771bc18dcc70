"""The benchmark of the registry: lookups by number of items, and events to 1,000 listeners.

Run it with `make bench`, or `python -m benchmarks.registry --help`. `docs/benchmarks-registry.md`
describes what is measured and how, and holds the last results.
"""
