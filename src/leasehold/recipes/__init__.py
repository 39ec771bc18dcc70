"""What clients build of keys, leases and watches: locks, and what is made of them."""
