"""Sends requests over HTTP and retries them."""
