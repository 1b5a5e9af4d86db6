"""One process that is a catalog: what `frazil serve` assembles, listens with, and runs."""
