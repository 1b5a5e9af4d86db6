"""Commands that run and check the server."""
