"""Locks and the recipes built on them. They run in the client, on any engine."""
