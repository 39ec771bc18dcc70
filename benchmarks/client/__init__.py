"""Our client beside `aetcd` and `etcd3`, and what it costs to keep 10,000 leases.

Run it with `make bench`, or `python -m benchmarks.client --help`. `docs/benchmarks-client.md` says
what is measured, and has the results.
"""
