"""`python -m moozi` is `moozi`."""

from moozi.cli import main

if __name__ == "__main__":
  main()
