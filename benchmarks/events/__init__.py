"""The benchmark of events: deliveries to 1,000 listeners, ten of which never answer.

Run it with `make bench`, or `python -m benchmarks.events --help`. `docs/benchmarks-events.md`
describes what is measured and how, and holds the last results.
"""
