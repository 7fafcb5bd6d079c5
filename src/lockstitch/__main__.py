"""`python -m lockstitch`."""

from lockstitch.cli import main

if __name__ == "__main__":
    main()
