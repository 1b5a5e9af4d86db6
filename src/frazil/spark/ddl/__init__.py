"""Create, replace and alter tables."""
