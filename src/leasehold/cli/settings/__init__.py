"""Settings from flags, `LEASEHOLD_*` variables and a TOML file.

`options` has the table of all options; `sources` merges the sources.
"""
