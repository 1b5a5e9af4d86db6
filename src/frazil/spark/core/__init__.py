"""What every statement on Spark shares: the context with its settings, and the retry loop."""
