"""Several runs: jobs that are trained and resumed as a group, sweeps from a file, and their comparison.

A `jobs.Job` is one run of `moozi train`. `runner.Runner` trains a list of jobs, each in its own process,
within a `time_budget.TimeBudget`. `comparison` reads runs, groups them by configuration, and estimates their
returns with intervals over seeds (`statistics`).
"""
