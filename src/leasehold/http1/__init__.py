"""HTTP/1.1 without I/O, on the port that also serves gRPC."""
