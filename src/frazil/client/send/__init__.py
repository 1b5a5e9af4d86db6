"""HTTP requests to the catalog, and their retries."""
