"""Runs sweeps (lists of training runs that are resumed until they are done), and reads their results.

A sweep is one file, `experiments/NAME/sweep.py`, that passes a list of jobs to `sweep.main`:

    JOBS = [
      Job(
        name=f"n_step_{n}_seed{seed}",
        config=ROOT / "config" / "minatar" / "breakout.yaml",
        overrides=("max_env_steps=3_000_000", f"targets.n_step={n}"),
        seed=seed,
        evaluations=(Evaluation(checkpoint="1000000"), Evaluation(checkpoint="last")),
      )
      for seed in range(3)
      for n in (5, 10)
    ]

`python -m experiments.NAME.sweep` runs for at most `--minutes` (default 55). Call it again until it prints
"all jobs are done"; `--list` prints the progress of each job.

- A job is one run of `moozi train` in `runs/NAME/<job>`, and then `moozi evaluate` of its checkpoints. A
  run that was stopped or killed is resumed from its last checkpoint. Output is appended to `<job>.log`.
- A finished job is copied to `experiments/NAME/results/<job>/` (`results` lists the files), which is
  committed, and is skipped from then on. The job can later be extended by more steps, time or evaluations.
- A result or a run whose settings differ from the job's present settings is an error: move it away to repeat
  the job.
- One sweep at a time uses `runs/`: wall times are comparable only when nothing else uses the machine.

An ablation is also one file: `ablation.Ablation` defines named variants of a configuration, and
`ablation.main` runs each variant with every seed for equal environment steps and prints a table. Change one
setting in each variant; `default` is the unchanged configuration. Use at least three seeds before claiming a
difference (`statistics.estimate` gives intervals).
"""
