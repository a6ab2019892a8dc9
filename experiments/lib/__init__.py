"""Shared code of the experiments: results, tables and pictures.

An experiment is a folder `experiments/NAME` with a page (README.md) and results. Most also have a sweep
(NAME.yaml; docs/compare.md describes sweeps) and functions that make tables and pictures (table.py and
plot.py). `moozi sweep experiments/NAME/NAME.yaml` trains and evaluates the jobs without a result, and copies
finished jobs to `results/`, which is committed. `python -m experiments.lib.tables NAME --readme` writes the
tables into the page, and `python -m experiments.lib.pictures NAME` draws the pictures.

Wall times are comparable only on equal machines that nothing else uses. Claim a difference only with three
seeds or more (`moozi.experiments.statistics` has intervals).
"""
