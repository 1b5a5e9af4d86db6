"""`python -m frazil` is the `frazil` command."""

from frazil.cli import main

if __name__ == "__main__":
    main()
