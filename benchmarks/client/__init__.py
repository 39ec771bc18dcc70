"""Compares the client with `aetcd` and `etcd3`, and measures the cost of 10,000 leases.

Run it with `make bench`, or `python -m benchmarks.client --help`. `docs/benchmarks-client.md`
describes what is measured, and has the results.
"""
