"""`moozi envs`."""

from typing import Annotated

import typer


def list_environments(
  library: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="Only its environments.")] = None,
) -> int:
  """List the environments and their options."""
  from moozi.envs.registry import list_environments

  worlds = list_environments(library)
  width = max(len(w.name) for w in worlds)
  for i, env in enumerate(worlds):
    print(f"{env.name:<{width}}  {env.summary}")
    if i + 1 == len(worlds) or worlds[i + 1].options != env.options:
      for key, text in env.options.items():
        print(f"    env.kwargs.{key}: {text}")
  return 0
