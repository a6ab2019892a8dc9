"""A callback of your own: writes each evaluation's mean return to a file.

In this folder: `moozi train tiny/catch callbacks=callback:make`, or `python callback.py`.
"""

import moozi
from moozi.run.events import Evaluated


@moozi.register_callback("returns_file")
def make(config, run_path):
  """Returns a function that is called with every event of the run."""

  def callback(event):
    if isinstance(event, Evaluated):
      with open(run_path / "returns.csv", "a") as file:
        file.write(f"{event.env_steps},{event.result.returns.mean():.3f}\n")

  return callback


if __name__ == "__main__":
  moozi.train("tiny/catch", callbacks=["returns_file"])
