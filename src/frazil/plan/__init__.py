"""Plans scans: finds the files that a reader must open, once on the server for all clients."""
