"""Leasehold: promises with an end, on any resource."""

__version__ = "0.1.0.dev0"
