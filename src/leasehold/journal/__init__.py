"""The journal: batches of changes in an SQLite database, and its files."""
