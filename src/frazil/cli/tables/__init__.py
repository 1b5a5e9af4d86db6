"""Commands that read and change tables of a catalog."""
