"""The parts that all services of a server share: shards, leased records, forwarding of calls."""
