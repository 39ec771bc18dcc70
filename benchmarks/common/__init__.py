"""What benchmarks have in common: spreads, tables, plots, and the pages they are written into."""
