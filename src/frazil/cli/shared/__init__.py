"""What commands share: options, names, printing and errors."""
