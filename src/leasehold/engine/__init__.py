"""The engine: a keyspace with leases, in memory for serving and in SQLite for keeping."""
