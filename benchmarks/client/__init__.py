"""What a writer sees of the client: appends, shares of calls that succeed, footers, imports."""
