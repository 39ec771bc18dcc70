"""Scripts for those who work on Leasehold; nothing here is installed."""
