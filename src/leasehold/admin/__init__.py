"""Administration: what is set for the services of a server, while servers run."""
