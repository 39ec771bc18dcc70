"""What the server shows of itself on `/metrics`, for Prometheus."""
