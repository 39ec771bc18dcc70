"""gRPC on HTTP/2: calls of servers and of clients, health checking, reflection."""
