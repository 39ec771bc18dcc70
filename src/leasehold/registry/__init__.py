"""The registry: services that are found while they live."""
