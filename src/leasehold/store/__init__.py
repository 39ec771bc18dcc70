"""The store: keyspace and leases in memory, commits to the journal, backups."""
