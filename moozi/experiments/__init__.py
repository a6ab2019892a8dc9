"""Trains, resumes and compares several runs.

A `jobs.Job` describes one run of `moozi train`. `sweep_file` reads jobs from a file. `runner.Runner` trains a
list of jobs, each in its own process, within a `time_budget.TimeBudget`. `comparison` reads runs, groups them
by configuration, and estimates their returns with intervals over seeds (`statistics`).
"""
