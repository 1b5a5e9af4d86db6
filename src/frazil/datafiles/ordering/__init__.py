"""Orders rows: sort keys, Z-order keys, and sorting with bounded memory."""
