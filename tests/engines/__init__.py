"""One suite for `Engine`, whatever is behind it; and what is the remote engine's alone."""
