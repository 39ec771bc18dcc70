"""The benchmark of the transport against grpcio: server and client, unary and streaming, memory.

Run it with `make bench`, or `python -m benchmarks.transport --help`. `docs/benchmarks-transport.md`
describes what is measured and how, and has the last results.
"""
