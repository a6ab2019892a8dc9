"""`moozi envs`."""

from typing import Annotated

import typer


def list_environments(
  suite: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="List only this suite.")] = None,
) -> int:
  """List environments and their options."""
  from moozi.envs.registry import list_environments

  envs = list_environments(suite)
  width = max(len(env.name) for env in envs)
  for i, env in enumerate(envs):
    print(f"{env.name:<{width}}  {env.summary}")
    if i + 1 == len(envs) or envs[i + 1].options != env.options:
      for key, text in env.options.items():
        print(f"    env.kwargs.{key}: {text}")
  return 0
