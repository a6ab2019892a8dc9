"""Shared code of the experiments: results and tables.

An experiment is a folder `experiments/NAME` with a page (README.md), a sweep (NAME.yaml), results and the
functions of its tables (table.py). `moozi sweep experiments/NAME/NAME.yaml` trains and evaluates what has no
result; docs/compare.md describes the file. Finished jobs are copied to `results/`, which is committed.
`python -m experiments.lib.tables NAME --readme` writes the tables into the page.

Wall times are comparable only when nothing else uses the machine. Use at least three seeds before claiming a
difference (`moozi.experiments.statistics` has intervals).
"""
