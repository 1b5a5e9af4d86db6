"""Scan planning: which files a reader must open, found once at the server for every client."""
