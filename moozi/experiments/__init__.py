"""Trains, resumes and compares several runs.

A `jobs.Job` describes one run of `moozi train` and the evaluations of its checkpoints. `sweep_file` reads a
`jobs.Sweep` from a file. `runner.Runner` trains and evaluates a sweep's jobs in processes of their own,
within a `time_budget.TimeBudget`, and writes the `results` of finished jobs. `comparison` reads runs, groups
them by configuration, and estimates their returns with intervals over seeds (`statistics`).
"""
