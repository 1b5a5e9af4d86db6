"""The client: declares which files changed and sends it until the outcome is known.

It knows the wire and the values, and nothing of the server's rooms.
"""
