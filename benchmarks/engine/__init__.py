"""The benchmark of the engine: calls, watches, expiry, memory, start-up, and pauses of the loop.

Run it with `make bench`, or `python -m benchmarks.engine --help`. `docs/benchmarks-engine.md`
describes what is measured and how, and holds the last results.
"""
