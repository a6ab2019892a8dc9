"""Training workers, inference servers, past selves and evaluations."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from moozi.core.config.section import (
  ActorResources,
  NonNegativeFloat,
  NonNegativeInt,
  PlayerName,
  PositiveFloat,
  PositiveInt,
  Probability,
  Section,
  Seed,
)


class WorkersConfig(Section):
  """Training workers and their environments."""

  num_workers: PositiveInt = Field(
    1, description="number of training workers; in one process they act in turn"
  )
  num_envs: PositiveInt = Field(
    64, description="number of environments in each worker; PPO divides ppo.num_envs instead"
  )
  segment_length: PositiveInt = Field(
    16, description="number of vector steps in one call of a worker; not read by PPO"
  )
  rollout: Literal["auto", "scan", "step"] = Field(
    "auto",
    description="scan: one compiled rollout, for environments written in JAX; step: environment and agent "
    "alternate; auto: scan for environments written in JAX, unless max_random_starts is above 0 or inference "
    "servers decide, else step",
  )
  max_random_starts: NonNegativeInt = Field(
    0,
    description="start training episodes with k random legal actions, k ~ U{0 … max_random_starts}, "
    "to learn from positions that good play avoids; these actions are not trained on; not with rollout=scan",
  )
  num_holding_envs: NonNegativeInt = Field(
    0,
    description="number of environments of each worker that often repeat the last action: temporally "
    "extended exploration; the mean length of an action is 2 to 64 steps, by environment; all environments "
    "if num_envs is smaller; not in self-play of two players",
  )
  holding_env_steps: PositiveInt | None = Field(
    None,
    description="environment steps of the run after which num_holding_envs repeat no actions; null: they "
    "repeat actions during the whole run",
  )
  max_env_faults: PositiveInt = Field(
    10,
    description="number of consecutive faults of one environment after which the run ends; before that, an "
    "environment that raises or hangs is created again with a new seed, unless it is vectorized in C++ or "
    "JAX; a finished episode resets the count",
  )
  env_timeout_s: PositiveFloat | None = Field(
    60.0,
    description="seconds after which a step or reset counts as hung, also in evaluations; null: no limit",
  )
  network: Literal["online", "target"] = Field(
    "online", description="act with the learner's parameters or with the target network"
  )
  resources: ActorResources = ActorResources(num_cpus=0.5, niceness=5)


class ActingConfig(Section):
  """Where agents decide: in training workers, or in inference servers that decide for several workers."""

  mode: Literal["worker", "server"] = Field(
    "worker",
    description="worker: each training worker decides in its own process; server: training workers only step "
    "environments, and inference servers decide (docs/cluster.md#inference-servers); muzero and alphazero, "
    "not with rollout=scan or past selves; runtime=local acts as with worker",
  )
  num_servers: PositiveInt = Field(
    1, description="server: number of inference servers; training worker i asks server i modulo this number"
  )
  max_batch: PositiveInt | None = Field(
    None,
    description="server: maximum number of requests in a batch; a request has the frames of one worker's "
    "environments; null: one request of each worker that asks the server",
  )
  max_wait_ms: NonNegativeFloat = Field(
    2.0,
    description="server: milliseconds that an idle server waits, after a request has arrived, for further "
    "requests of the batch",
  )
  resources: ActorResources = ActorResources(num_cpus=0.5, niceness=5)

  def check_servers(self, num_workers: int, rollout: str, past_share: float) -> None:
    """Raises ValueError if inference servers cannot decide for the training workers."""
    if not num_workers:
      raise ValueError("acting.mode=server: no worker acts with offline.fraction=1")
    if self.num_servers > num_workers:
      raise ValueError(
        f"acting.num_servers={self.num_servers}: must be at most workers.num_workers={num_workers}"
      )
    if rollout == "scan":
      raise ValueError(
        "workers.rollout=scan: must be auto or step with acting.mode=server, because a compiled rollout "
        "decides in its own process"
      )
    if past_share:
      raise ValueError(
        f"opponents.past_share={past_share:g}: must be 0 with acting.mode=server, whose servers have the "
        "current parameters only"
      )


class PastSelvesConfig(Section):
  """Past selves: opponents in training games that are the agent with earlier parameters."""

  past_share: Probability = Field(
    0.0,
    description="two players: share of each worker's environments in which a past self plays one side, "
    "rounded to an even number of at least 2 environments; 0: no past selves; OpenAI Five: 0.2",
  )
  pool_size: PositiveInt = Field(
    20,
    description="number of past selves kept; a new one replaces the one of lowest quality among those that "
    "no worker plays against, if there is one",
  )
  period_updates: PositiveInt = Field(
    2_000, description="minimum learner steps between two additions of the current parameters to the pool"
  )
  quality_rate: PositiveFloat = Field(
    0.01,
    description="η: for each counted game that a past self loses, its quality falls by η / (N · p); N is the "
    "size of the pool, and p the probability of this past self, at its draw. In each environment, one "
    "game counts for each draw",
  )


class PoolMember(Section):
  """A player of the pool that rates the agent."""

  player: PlayerName = Field(description="as evaluation.opponent, but not self")
  rating: Annotated[float, Field(ge=-10_000, le=10_000)] = Field(
    description="its rating, such as one of moozi arena; the ratings of a pool have one scale"
  )

  @field_validator("player")
  @classmethod
  def _is_fixed(cls, player: str) -> str:
    if player == "self":
      raise ValueError("player=self: must be a fixed player")
    return player


class EvaluationConfig(Section):
  """Evaluation episodes during a run, at its end, and in `moozi evaluate`. Their seeds are fixed."""

  period_env_steps: PositiveInt = Field(
    200_000,
    description="environment steps between two evaluations; at the last step there is only the final one",
  )
  episodes: PositiveInt = Field(10, description="number of episodes in an evaluation during the run")
  stop_value: float | None = Field(
    None,
    description="end training when an evaluation during the run has at least this mean return; the final "
    "evaluation follows; null: never",
  )
  num_envs: PositiveInt = Field(10, description="maximum number of parallel episodes")
  max_random_starts: NonNegativeInt = Field(
    8, description="start episodes with k random legal actions, k ~ U{0 … max_random_starts}"
  )
  seed: Seed = Field(20_000_003, description="seed of the evaluation episodes, independent of the run's seed")
  noise_free: bool = Field(
    True,
    description="play without noise: temperature, dirichlet_fraction, gumbel_scale and random_action_prob "
    "are 0 and root_prior_temperature is 1, whatever planners.test sets; false: planners.test unchanged, as "
    "in the thesis; ppo and your own algorithm then have temperature 1, and q_learning has epsilon_end",
  )
  max_episode_steps: PositiveInt = Field(
    10_000, description="step limit of an evaluation episode, in addition to the environment's own"
  )
  final_episodes: PositiveInt = Field(100, description="number of episodes in the evaluation at the end")
  opponent: PlayerName = Field(
    "random",
    description="two players: who plays the other seat: random, self, mcts or mcts:N with N simulations, "
    "alpha_beta or alpha_beta:N with depth N (both in a user's games with max_moves, and in OpenSpiel's "
    "without hidden information; alpha_beta only without chance), run:PATH[@checkpoint], zoo:NAME, "
    "prior:PATH[@checkpoint] (a run's network without search), approach:NAME (the last complete run of an "
    "algorithm), a registered name, or module:function",
  )
  pool: Annotated[tuple[PoolMember, ...], Field(max_length=64)] = Field(
    (),
    description="two players: fixed players, as a list of {player, rating}; evaluations of the run also play "
    "pool_episodes against each player and report the agent's rating (docs/arena.md)",
  )
  pool_episodes: PositiveInt = Field(20, description="number of episodes against each player of the pool")
  gate_score: Probability | None = Field(
    None,
    description="two players: new parameters act in training only once they score at least this in "
    "gate_episodes against those that act, in an evaluation of the run; null: the newest parameters act; "
    "AlphaGo Zero: 0.55",
  )
  gate_episodes: PositiveInt = Field(40, description="number of episodes of the gate")
  network: Literal["online", "target"] = Field(
    "online",
    description="play with the learner's parameters or with the target network, in evaluations and wherever "
    "a checkpoint plays",
  )
  opponent_simulations: PositiveInt = Field(100, description="mcts: simulations per search of the opponent")
  gif: bool = Field(
    True,
    description="write a GIF of each evaluation's first episode, and a tiled GIF of its first gif_tiles "
    "episodes",
  )
  gif_max_frames: PositiveInt = Field(300, description="maximum number of frames of a GIF")
  gif_tiles: Annotated[int, Field(ge=0, le=64)] = Field(
    9, description="maximum number of episodes in the tiled GIF; 0: no tiled GIF"
  )
  resources: ActorResources = ActorResources(num_cpus=0.125, niceness=10)

  @property
  def opponent_name(self) -> str:
    """The opponent; `mcts` without a number has `opponent_simulations`, as in `mcts:100`."""
    return f"mcts:{self.opponent_simulations}" if self.opponent == "mcts" else self.opponent

  def against(self, player: str) -> "EvaluationConfig":
    """Returns these settings with another opponent."""
    return self.model_copy(update={"opponent": player})
