"""Compares the locks with `redis-py`, `kazoo`, `aetcd` and `etcd3`, with and without the cache.

Run it with `make bench`, or `python -m benchmarks.locks --help`. `docs/benchmarks-locks.md`
describes what is measured, and has the results.
"""
