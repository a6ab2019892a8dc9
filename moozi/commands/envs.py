"""`moozi envs`."""

from typing import Annotated

import typer


def list_environments(
  library: Annotated[str | None, typer.Argument(metavar="[LIBRARY]", help="Only its worlds.")] = None,
) -> int:
  """List the worlds and their options."""
  from moozi.envs.registry import list_worlds

  worlds = list_worlds(library)
  width = max(len(w.name) for w in worlds)
  for i, world in enumerate(worlds):
    print(f"{world.name:<{width}}  {world.summary}")
    if i + 1 == len(worlds) or worlds[i + 1].options != world.options:
      for key, text in world.options.items():
        print(f"    env.kwargs.{key}: {text}")
  return 0
