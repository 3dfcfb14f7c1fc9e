"""``python -m colonnade`` is ``colonnade``."""

from colonnade.cli import main

if __name__ == "__main__":
    main()
