"""One port for gRPC and HTTP/1.1: listening, accepting, admission, TLS."""
