"""Commands that maintain tables."""
