"""Settings, as people give them: flags, `LEASEHOLD_*` variables and a TOML file.

`options` has the one table of what there is; `reading` puts all sources together.
"""
