"""Our locks beside those of `redis-py`, `kazoo`, `aetcd` and `etcd3`, and what caching them saves.

Run it with `make bench`, or `python -m benchmarks.locks --help`. `docs/benchmarks-locks.md` says
what is measured, and has the results.
"""
