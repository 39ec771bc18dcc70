"""The benchmark of the transport beside grpcio: server and client, unary and streaming, memory.

Run it with `make bench`, or `python -m benchmarks.transport --help`. `docs/benchmarks-transport.md`
says what is measured and how, and holds the last results.
"""
