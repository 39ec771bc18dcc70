"""Settings, as people give them: flags, `LEASEHOLD_*` variables and a TOML file.

`options` has the one table of what there is; `read_settings` puts all sources together.
"""

from leasehold.cli.settings.reading import Reading, read_settings

__all__ = ["Reading", "read_settings"]
