"""The keyspace, pure: keys and revisions, ranges, transactions, watchers."""
