"""HTTP/2 without I/O: frames, header compression, flow control, limits."""
