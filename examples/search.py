"""A search of your own: PUCT with Q-values normalized by known bounds of the return.

In this folder: `python search.py`, or
`moozi train tiny/catch planners.train.algorithm=search:search planners.train.dirichlet_fraction=0.25`.
"""

import functools

import mctx

import moozi


@moozi.register_search("bounded_puct")
def search(config, *, params, rng_key, root, recurrent_fn, invalid_actions, temperature):
  """Returns an mctx.PolicyOutput."""
  return mctx.muzero_policy(
    params,
    rng_key,
    root,
    recurrent_fn,
    num_simulations=config.num_simulations,
    invalid_actions=invalid_actions,
    max_depth=config.max_depth,
    qtransform=functools.partial(mctx.qtransform_by_min_max, min_value=-1.0, max_value=1.0),
    dirichlet_fraction=config.dirichlet_fraction,
    temperature=temperature,
  )


if __name__ == "__main__":
  moozi.train("tiny/catch", planners={"train": {"algorithm": "bounded_puct", "dirichlet_fraction": 0.25}})
