"""The program `moozi`: its entry point, which handles stop signals before it imports the commands.

The commands are in `moozi.commands.app`.
"""

import sys
from collections.abc import Sequence

if sys.platform == "win32":
  # Runs lock and protect their files with POSIX calls.
  sys.exit("moozi: error: Windows is not supported; use WSL 2 or the container (docs/install.md)")

from moozi.run.interrupts import Interrupts


def main(arguments: Sequence[str] | None = None) -> None:
  """Runs the command line and exits with the command's status.

  The status is 2 after a user error, or after an error of JAX or the system that `commands.system_errors`
  describes. After stop signal N it is 128 + N (130 after Ctrl-C), unless the command handles the signal: when
  training has begun, `moozi train` saves a checkpoint and exits with 0.

  Args:
    arguments: the arguments after the program's name; None: those in `sys.argv`.
  """
  with Interrupts() as interrupts:
    try:
      from moozi.commands.app import run

      interrupts.check()  # a signal during the import; a fast command could end before it is raised
      status = run(arguments)
      interrupts.check()
    except KeyboardInterrupt:
      status = 130
    # Some commands end normally after Ctrl-C, with their own status.
    sys.exit(interrupts.status if status == 130 else status)


if __name__ == "__main__":
  main()
