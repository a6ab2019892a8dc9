"""The configuration of a run: frozen, typed, strict. `moozi.io.config` reads YAML and overrides.

Properties of the environment (shapes, number of actions, players) come from its spec, not from the
configuration. This module has the whole configuration, and the checks that compare keys of several sections;
the sections are in other modules of this package.
"""

from typing import Literal

from pydantic import Field, model_validator

from moozi.core.config.acting import ActingConfig, EvaluationConfig, PastSelvesConfig, WorkersConfig
from moozi.core.config.budget import num_updates
from moozi.core.config.chance import ChanceConfig
from moozi.core.config.env import EnvConfig
from moozi.core.config.files import CheckpointConfig, LoggingConfig, RunConfig, TimelineConfig
from moozi.core.config.learning import LearnerConfig, LearningRateConfig, ReplayConfig, TargetsConfig
from moozi.core.config.network import NetworkConfig, ScalarTransformConfig
from moozi.core.config.planner import (
  CHANCE_SEARCHES,
  GUMBEL_SEARCHES,
  PlannerConfig,
  PlannersConfig,
  TemperaturePoint,
)
from moozi.core.config.ppo import PPOConfig
from moozi.core.config.q_learning import QLearningConfig
from moozi.core.config.ray import RayConfig
from moozi.core.config.reanalyze import OfflineConfig, ReanalyzeConfig, TrajectoriesConfig
from moozi.core.config.section import (
  ActorResources,
  AlgorithmName,
  CallbackNames,
  NonNegativeInt,
  PositiveFloat,
  PositiveInt,
  Probability,
  Section,
  Seed,
)
from moozi.core.user_code import split_call

__all__ = [
  "ActorResources",
  "CheckpointConfig",
  "Config",
  "EnvConfig",
  "LearnerConfig",
  "LearningRateConfig",
  "NetworkConfig",
  "NonNegativeInt",
  "PlannerConfig",
  "PositiveInt",
  "Probability",
  "RayConfig",
  "ReplayConfig",
  "RunConfig",
  "ScalarTransformConfig",
  "Section",
  "TargetsConfig",
  "TemperaturePoint",
  "WorkersConfig",
]


class Config(Section):
  """The whole configuration of a run."""

  seed: Seed = Field(0, description="seed of training; each of its parts derives its own seed from it")
  algorithm: AlgorithmName = Field(
    "muzero",
    description="muzero: search with a learned model; alphazero: search with the true rules of a game that "
    "has neither chance nor hidden information, with targets.unroll_steps=0; ppo, q_learning: baselines, "
    "each with its own section; or your own: a registered name or module:function, with arguments as in "
    "my_module:make(rate=0.1) (docs/plugins.md). q_learning and your own run in one process and ignore "
    "`runtime`",
  )
  runtime: Literal["ray", "local"] = Field(
    "ray",
    description="ray: actors in parallel processes; local: one process, whose runs can be reproduced to the "
    "bit (docs/faq.md)",
  )
  max_env_steps: PositiveInt = Field(
    1_000_000,
    description="training ends once the run has at least this number of environment steps; a reset is a step "
    "too, so an episode of n actions has n + 1 steps",
  )
  max_wall_s: PositiveFloat | None = Field(
    None,
    description="seconds, with those before a resume, after which training ends; the time of evaluations "
    "counts; null: no limit",
  )
  callbacks: CallbackNames = Field(
    (), description="functions that make callbacks, which receive every event; by name or module:function"
  )
  env: EnvConfig = EnvConfig()
  run: RunConfig = RunConfig()
  network: NetworkConfig = NetworkConfig()
  chance: ChanceConfig = ChanceConfig()
  scalar_transform: ScalarTransformConfig = ScalarTransformConfig()
  targets: TargetsConfig = TargetsConfig()
  planners: PlannersConfig = PlannersConfig()
  replay: ReplayConfig = ReplayConfig()
  learner: LearnerConfig = LearnerConfig()
  workers: WorkersConfig = WorkersConfig()
  acting: ActingConfig = ActingConfig()
  opponents: PastSelvesConfig = PastSelvesConfig()
  evaluation: EvaluationConfig = EvaluationConfig()
  checkpoint: CheckpointConfig = CheckpointConfig()
  logging: LoggingConfig = LoggingConfig()
  timeline: TimelineConfig = TimelineConfig()
  reanalyze: ReanalyzeConfig = ReanalyzeConfig()
  trajectories: TrajectoriesConfig = TrajectoriesConfig()
  offline: OfflineConfig = OfflineConfig()
  ray: RayConfig = RayConfig()
  ppo: PPOConfig = PPOConfig()
  q_learning: QLearningConfig = QLearningConfig()

  def allowing_code(self, is_allowed: bool) -> "Config":
    """Returns a copy with `allows_code` set, also in the sections that name players."""
    sections = {name: getattr(self, name).allowing_code(is_allowed) for name in ("env", "evaluation")}
    return super().allowing_code(is_allowed).model_copy(update=sections)

  @property
  def num_updates(self) -> int:
    """Number of learner steps of a run that loses no steps: `budget.num_updates`."""
    return num_updates(self)

  @property
  def decay_steps(self) -> int | None:
    """`learner.learning_rate.decay_steps`; of `budget` or `progress` the learner steps after the warm-up."""
    rate = self.learner.learning_rate
    if isinstance(rate.decay_steps, str):
      return max(1, self.num_updates - rate.warmup_steps)
    return rate.decay_steps

  def _check_searches(self) -> None:
    """Raises ValueError if a search needs chance nodes that the model lacks, or is one of GUMBEL_SEARCHES
    with the mean as its root value.
    """
    if not self.searches:
      return
    # `moozi reanalyze` searches with planners.reanalyze whatever reanalyze.ratio is.
    used = {
      "train": self.planners.train,
      "test": self.planners.test,
      "reanalyze": self.planners.for_reanalyze,
    }
    for name, planner in used.items():
      if planner.algorithm in CHANCE_SEARCHES and not self.chance.codes:
        raise ValueError(
          f"planners.{name}.algorithm={planner.algorithm}: the model has no chance nodes; set chance.codes "
          "to more than the number of outcomes, or choose gumbel or puct"
        )
      if planner.algorithm in GUMBEL_SEARCHES and planner.root_value == "mean":
        raise ValueError(
          f"planners.{name}.root_value=mean: must be improved with algorithm={planner.algorithm}, which "
          "visits losing actions as often as others"
        )

  def _check_networks(self) -> None:
    """Raises ValueError if acting or evaluation uses a target network that the algorithm does not have."""
    is_table = self.algorithm == "q_learning" and self.q_learning.kind == "table"
    if is_table or self.is_on_policy:
      agent = "q_learning.kind=table" if is_table else f"algorithm={self.algorithm}"
      for name in ("workers", "evaluation"):
        if getattr(self, name).network == "target":
          raise ValueError(f"{name}.network=target: {agent} has no target network; must be online")

  @property
  def algorithm_name(self) -> str:
    """The value of `algorithm` without arguments."""
    return split_call(self.algorithm)[0]

  @property
  def is_on_policy(self) -> bool:
    """Whether the algorithm gets each segment once, without MooZi's replay: PPO and a user's algorithm."""
    return self.algorithm not in ("muzero", "alphazero", "q_learning")

  @property
  def searches(self) -> bool:
    """Whether the agent searches: MuZero with a model, AlphaZero with the game's true rules."""
    return self.algorithm in ("muzero", "alphazero")

  @property
  def has_one_process(self) -> bool:
    """Whether acting, learning and evaluations take turns in one process.

    They do so with runtime=local, and with each algorithm that ignores `runtime`.
    """
    return self.runtime == "local" or self.algorithm not in ("muzero", "alphazero", "ppo")

  @property
  def has_model(self) -> bool:
    """Whether the agent learns a model that can be unrolled."""
    return self.algorithm == "muzero"

  @property
  def plans_with_rules(self) -> bool:
    """Whether searches use the game's true rules; they then need the position at the root."""
    return self.algorithm == "alphazero"

  @property
  def frames_ahead(self) -> int:
    """Number of frames after the start step in a training target."""
    return self.targets.unroll_steps if self.chance.codes else 1

  @property
  def num_acting_workers(self) -> int:
    """Number of training workers that act: 0 if all training is on trajectories from disk."""
    is_offline = self.offline.trajectories is not None and self.offline.fraction == 1
    return 0 if is_offline else self.workers.num_workers

  @property
  def min_workers(self) -> int:
    """Smallest number of workers at the start: `ray.min_workers` if it is read, else all that act."""
    least = None if self.has_one_process else self.ray.min_workers
    return min(least or self.num_acting_workers, self.num_acting_workers)

  @property
  def max_workers(self) -> int:
    """Maximum number of training workers."""
    return (not self.has_one_process and self.ray.max_workers) or self.workers.num_workers

  @property
  def num_inference_servers(self) -> int:
    """Number of inference servers of the run; 0 if its training workers decide themselves."""
    is_served = self.acting.mode == "server" and self.num_acting_workers and not self.has_one_process
    return self.acting.num_servers if is_served else 0

  @property
  def max_inference_batch(self) -> int:
    """Maximum number of requests in a batch of an inference server."""
    acting = self.acting
    return acting.max_batch or -(-self.max_workers // acting.num_servers)

  @property
  def worker_envs(self) -> int:
    """Number of environments of a training worker; with PPO, its share of `ppo.num_envs`."""
    return self.ppo.num_envs // self.workers.num_workers if self.algorithm == "ppo" else self.workers.num_envs

  @property
  def segment_length(self) -> int:
    """Number of vector steps of a training worker's segment."""
    return self.ppo.segment_length if self.algorithm == "ppo" else self.workers.segment_length

  @property
  def num_past_lanes(self) -> int:
    """Number of environments of a training worker in which a past self plays.

    The number is even, and the past self plays each seat in half of these environments.
    """
    num_envs, share = self.worker_envs, self.opponents.past_share
    return 2 * min(num_envs // 2, max(1, round(share * num_envs / 2))) if share else 0

  @property
  def past_selves_text(self) -> str:
    """How many environments have a past self, as text for the start of a run; empty without past selves."""
    if not self.num_past_lanes:
      return ""
    num_past, num_envs, share = self.num_past_lanes, self.worker_envs, self.opponents.past_share
    return (
      f"; past selves play in {num_past} of each worker's {num_envs} environments ({num_past / num_envs:.3g} "
      f"with opponents.past_share={share:g})"
    )

  @model_validator(mode="after")
  def _fits(self) -> "Config":
    self._check_algorithm()
    self._check_learner()
    self._check_networks()
    self._check_searches()
    self._check_workers()
    if not self.is_on_policy:
      self._check_replay()
    return self

  def _check_algorithm(self) -> None:
    """Raises ValueError if a setting does not fit the algorithm, or lacks another setting that it needs."""
    train, holding, age = self.planners.train, self.workers.num_holding_envs, self.targets.search_value_age
    muzero, searching = ("muzero",), ("muzero", "alphazero")
    not_own, gate = (*searching, "ppo", "q_learning"), self.evaluation.gate_score
    for key, is_used, algorithms in (
      (f"planners.train.temperature_drop={train.temperature_drop}", bool(train.temperature_drop), searching),
      (f"workers.num_holding_envs={holding}", holding > 0, ("muzero", "q_learning")),
      (f"offline.trajectories={self.offline.trajectories}", self.offline.trajectories is not None, searching),
      (f"learner.extra_losses={list(self.learner.extra_losses)}", bool(self.learner.extra_losses), searching),
      ("network.normalize_observations=true", self.network.normalize_observations, searching),
      ("learner.symmetries=true", self.learner.symmetries, searching),
      (f"targets.search_value_age={age}", age is not None, muzero),
      ("targets.discount_schedule", bool(self.targets.discount_schedule), (*searching, "q_learning")),
      # Replay has frames, but the true rules continue from positions.
      (f"reanalyze.ratio={self.reanalyze.ratio:g}", self.reanalyze.ratio > 0, muzero),
      (f"chance.codes={self.chance.codes}", self.chance.codes > 0, muzero),
      (f"opponents.past_share={self.opponents.past_share:g}", self.opponents.past_share > 0, not_own),
      (f"evaluation.gate_score={gate}", gate is not None, (*searching, "q_learning")),
      ("acting.mode=server", self.acting.mode == "server", searching),
    ):
      if is_used and self.algorithm not in algorithms:
        raise ValueError(f"{key} needs algorithm={' or '.join(algorithms)}, not {self.algorithm}")
    unrolled = self.targets.unroll_steps
    if self.algorithm == "alphazero" and unrolled:
      raise ValueError(
        f"targets.unroll_steps={unrolled}: must be 0 with algorithm=alphazero, which has no model to unroll"
      )
    if self.algorithm in ("muzero", "q_learning") and not unrolled:
      raise ValueError(f"targets.unroll_steps=0: must be at least 1 with algorithm={self.algorithm}")
    if age is not None and not self.reanalyze.ratio:
      raise ValueError(f"targets.search_value_age={age}: needs reanalyze.ratio above 0")
    if age is not None and not self.reanalyze.search:
      # Without a search the target would be the network's own value, without any reward.
      raise ValueError(f"targets.search_value_age={age}: needs reanalyze.search=true")
    if age is not None and self.chance.codes:
      # A return is a value of the action that was played, a search value is not.
      raise ValueError(f"targets.search_value_age={age}: must be null with chance.codes={self.chance.codes}")
    if self.chance.codes and self.network.kind not in ("mlp", "conv_latent", "multi_input"):
      raise ValueError(
        f"chance.codes={self.chance.codes}: network.kind={self.network.kind} has no chance nodes; must be "
        "mlp, conv_latent or multi_input"
      )

  def _check_learner(self) -> None:
    """Raises ValueError if the learner cannot divide an update as set, or compute it in the set dtype."""
    learner = self.learner
    learner.check_hosts(self.algorithm, self.runtime)
    changed = [
      f"learner.{name}={getattr(learner, name)}"
      for name in ("num_devices", "accumulate", "compute_dtype")
      if getattr(learner, name) != LearnerConfig.model_fields[name].default
    ]
    if changed and self.is_on_policy:
      raise ValueError(
        f"{changed[0]} needs algorithm=muzero or alphazero or q_learning, not {self.algorithm}, which "
        "updates on one device in float32"
      )
    if changed and self.algorithm == "q_learning" and self.q_learning.kind == "table":
      raise ValueError(f"{changed[0]} needs q_learning.kind=network; a table learns its samples one by one")
    if learner.accumulate > 1 and self.searches:
      whole = {
        "network.norm=batch": self.network.norm == "batch",
        "network.normalize_observations=true": self.network.normalize_observations,
      }
      for setting in (setting for setting, is_used in whole.items() if is_used):
        raise ValueError(
          f"learner.accumulate={learner.accumulate}: must be 1 with {setting}, whose statistics are those of "
          "a whole batch"
        )
    if not self.has_one_process:
      learner.check_gpus(self.ray.learner.num_gpus)

  def _check_workers(self) -> None:
    """Raises ValueError if the settings of acting do not fit each other."""
    starts, holding = self.workers.max_random_starts, self.workers.num_holding_envs
    if starts and self.workers.rollout == "scan":
      raise ValueError(f"workers.max_random_starts={starts}: must be 0 with workers.rollout=scan")
    if self.algorithm == "ppo":
      self._check_division()
    elif self.opponents.past_share and self.workers.num_envs < 2:
      raise ValueError(
        f"workers.num_envs={self.workers.num_envs}: must be at least 2 with opponents.past_share, so that "
        "a past self plays each seat"
      )
    self._check_number_of_workers()
    if self.trajectories.save and not self.num_acting_workers:
      raise ValueError("trajectories.save=true: no worker acts with offline.fraction=1")
    if self.acting.mode == "server":
      self.acting.check_servers(self.num_acting_workers, self.workers.rollout, self.opponents.past_share)
    if holding and not self.num_acting_workers:
      raise ValueError(f"workers.num_holding_envs={holding}: no worker acts with offline.fraction=1")

  def _check_number_of_workers(self) -> None:
    """Raises ValueError if `ray.min_workers` and `ray.max_workers` do not fit the run."""
    num_workers, least, most = self.workers.num_workers, self.ray.min_workers, self.ray.max_workers
    for key, value, is_valid, bound in (
      ("min_workers", least, least is None or least <= num_workers, "most"),
      ("max_workers", most, most is None or most >= num_workers, "least"),
    ):
      if not is_valid:
        raise ValueError(f"ray.{key}={value}: must be at {bound} workers.num_workers={num_workers}")
      if value is not None and self.is_on_policy:
        raise ValueError(
          f"ray.{key}={value}: must be null with algorithm={self.algorithm}, whose rounds need all workers"
        )

  def _check_division(self) -> None:
    """Raises ValueError if PPO's environments cannot be divided among workers, or past selves cannot play."""
    num_workers, num_envs, lstm_size = self.workers.num_workers, self.ppo.num_envs, self.ppo.network.lstm_size
    if num_envs % num_workers:
      raise ValueError(
        f"workers.num_workers={num_workers}: must divide ppo.num_envs={num_envs}, because the workers share "
        "these environments equally"
      )
    if self.opponents.past_share and num_envs < 2 * num_workers:
      raise ValueError(
        f"ppo.num_envs={num_envs}: must be at least 2 for each of {num_workers} workers with "
        "opponents.past_share, so that a past self plays each seat"
      )
    if self.opponents.past_share and lstm_size:
      raise ValueError(
        f"ppo.network.lstm_size={lstm_size}: must be 0 with opponents.past_share, because a past self cannot "
        "read the state of the present LSTM"
      )

  def _check_replay(self) -> None:
    """Raises ValueError if replay or its draws cannot be divided as set, or replay is too small."""
    shards = self.ray.replay_shards
    if shards > self.workers.num_workers:
      raise ValueError(
        f"ray.replay_shards={shards}: must be at most workers.num_workers={self.workers.num_workers}, "
        "because each shard stores the steps of whole workers"
      )
    if shards > 1 and self.offline.trajectories is not None:
      raise ValueError(f"ray.replay_shards={shards}: must be 1 with offline.trajectories")
    if self.offline.trajectories is not None and self.num_acting_workers:
      for key, count in (
        ("learner.batch_size", self.learner.batch_size),
        ("reanalyze.batch_size", self.reanalyze.batch_size),
      ):
        if count < 2:
          raise ValueError(f"{key}={count}: must be at least 2 with offline.fraction below 1")
    num_lanes = self.max_workers * self.workers.num_envs
    lane = self.replay.capacity // num_lanes
    need = self.targets.history_length + self.targets.unroll_steps + self.targets.n_step
    if lane <= need + self.workers.segment_length:
      raise ValueError(
        f"replay.capacity={self.replay.capacity}: has {lane} steps for each of {num_lanes} environments; "
        f"must have more than {need + self.workers.segment_length} (history + unroll + n_step + segment)"
      )
    # A run with fewer workers than lanes fills only theirs.
    num_filled = self.min_workers or self.max_workers
    max_steps = (lane - need) * num_filled * self.workers.num_envs
    where = f"with ray.min_workers={num_filled}, " if num_filled < self.workers.num_workers else ""
    for key, value in (
      ("replay.min_steps_to_learn", self.replay.min_steps_to_learn),
      ("learner.batch_size", self.learner.batch_size),
    ):
      if value > max_steps:
        raise ValueError(
          f"{key}={value}: {where}replay.capacity={self.replay.capacity} allows at most {max_steps}"
        )
    window = self.replay.window_min // num_lanes
    reach = self.targets.unroll_steps + self.targets.n_step
    if self.replay.window_share < 1 and (window - reach) * num_lanes < self.learner.batch_size:
      least = (-(-self.learner.batch_size // num_lanes) + reach) * num_lanes
      raise ValueError(
        f"replay.window_min={self.replay.window_min}: has too few steps in which a target can start; must be "
        f"at least {least} with {num_lanes} environments and learner.batch_size={self.learner.batch_size}"
      )
