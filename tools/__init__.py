"""Scripts for the development of Leasehold; nothing here is installed."""
