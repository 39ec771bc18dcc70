"""The benchmark against etcd: both servers started fresh, in alternating rounds, under two loads.

Run it with `make bench-etcd`, or `python -m benchmarks.etcd --help`. `docs/benchmarks.md` describes
what is measured and how, and holds the last results. `python -m benchmarks.etcd.load` puts one load
on a server that already runs.
"""
