"""`Landlord`: leases on any resource, in one process or served over gRPC."""
