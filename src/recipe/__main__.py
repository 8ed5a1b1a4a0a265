"""`python -m recipe` is the command line."""

from recipe.cli import main

if __name__ == "__main__":
    main()
