"""Administration: the configuration of a server's own services, changed while it runs."""
