"""Sweeps: lists of training runs that are resumed until they are done, and results that are read back.

A sweep is one file, `experiments/NAME/sweep.py`. It builds a list of jobs and passes it to `sweep.main`:

    from experiments.lib.jobs import ROOT, Evaluation, Job
    from experiments.lib.sweep import main

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

    if __name__ == "__main__":
      sys.exit(main(JOBS, "NAME", __doc__))

`python -m experiments.NAME.sweep` runs for at most `--minutes` (default 55). Call it again until it prints
"all jobs are done"; `--list` prints the progress of each job.

- A job is one run of `moozi train`, in `runs/NAME/<job>`, followed by `moozi evaluate` of its checkpoints. A
  run that was stopped or killed is resumed from its last checkpoint. Output is appended to
  `runs/NAME/<job>.log`.
- A finished job is copied to `experiments/NAME/results/<job>/` (`results` lists the files), which is
  committed, and is skipped from then on. A job may grow later: more environment steps, more time, more
  evaluations.
- A result or a run whose settings differ from the job's present settings is an error: move it away to repeat
  the job.
- One sweep at a time uses `runs/`: wall times are comparable only when nothing else uses the machine.

An ablation changes one thing at a time. It is one file, too: `ablation.Ablation` takes a configuration and
named variants of a few `key=value` each, runs every variant with every seed at equal environment steps, and
prints a table. Add a variant for each change, alone; combine changes only in a separate variant. `default`
is the unchanged configuration, run with the same seeds. Use at least three seeds before claiming a difference
(`statistics.estimate` gives intervals).
"""
