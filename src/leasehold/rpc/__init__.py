"""gRPC on HTTP/2, sans I/O: bytes in, events and bytes out, and one thin shell that owns sockets.

Header decoding (`hpack`, `huffman`, `static_table`), frames and the connection's state machine know
no event loop, so that every rule of the RFCs can be tested by feeding bytes.
"""
