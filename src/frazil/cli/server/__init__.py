"""Runs and checks the server."""
