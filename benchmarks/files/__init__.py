"""The benchmark of single-writer files: appends, opening and closing, recovery.

Run it with `make bench`, or `python -m benchmarks.files --help`. `docs/benchmarks-files.md` has the
method and the results.
"""
