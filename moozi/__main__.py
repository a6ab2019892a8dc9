"""Runs the program `moozi` for `python -m moozi`."""

from moozi.cli import main

if __name__ == "__main__":
  main()
