"""The benchmark of the client: appends, success rates under contention, footers and imports."""
