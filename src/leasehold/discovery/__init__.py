"""Discovery: registrars are found on the network by group, or by address."""
