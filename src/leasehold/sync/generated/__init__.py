"""Blocking classes that tools/generate_sync.py has made from the async ones."""
