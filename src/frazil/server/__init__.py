"""The server process: reads the settings, opens the catalog, listens and serves."""
