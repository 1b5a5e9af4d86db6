"""Run the `frazil` command with `python -m frazil`."""

from frazil.cli import main

if __name__ == "__main__":
    main()
