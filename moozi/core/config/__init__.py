"""The configuration of a run: frozen, typed, strict. `moozi.io.config` reads YAML and overrides.

Properties of the environment (shapes, number of actions, players) come from its spec, not from the
configuration.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from moozi.core.config.budget import num_updates
from moozi.core.config.chance import ChanceConfig
from moozi.core.config.opponents import OpponentsConfig
from moozi.core.config.planner import CHANCE_SEARCHES, GUMBEL_SEARCHES, PlannersConfig
from moozi.core.config.planner import PlannerConfig as PlannerConfig
from moozi.core.config.planner import TemperaturePoint as TemperaturePoint
from moozi.core.config.ppo import PPOConfig
from moozi.core.config.q_learning import QLearningConfig
from moozi.core.config.reanalyze import OfflineConfig, ReanalyzeConfig, TrajectoriesConfig
from moozi.core.config.section import (
  ActorResources,
  CallbackNames,
  Decay,
  LossNames,
  NetworkName,
  NonNegativeFloat,
  NonNegativeInt,
  PlayerName,
  PositiveFloat,
  PositiveInt,
  Probability,
  Section,
  Seed,
  WrapperNames,
)


class RunConfig(Section):
  """The run's name, and the folder of all runs."""

  name: str | None = Field(None, description="folder under run.dir; null: named by environment and time")
  dir: str = Field("runs", description="folder of all runs")

  @property
  def folder(self) -> Path:
    """The folder `dir`; `~` is the user's home."""
    return Path(os.path.expanduser(self.dir))


class EnvConfig(Section):
  """The environment. Its suite validates `kwargs`."""

  name: str = Field("minatar:breakout", description="library:game, a registered name, or module:function")
  kwargs: dict[str, Any] = Field(default_factory=dict, description="options of the environment's suite")
  wrappers: WrapperNames = Field(
    (),
    description="functions that wrap the environment, the innermost first, such as my_module:wrap or "
    "my_module:wrap(k=3); only for gymnasium's and your own environments",
  )

  @property
  def arguments(self) -> dict[str, Any]:
    """Keyword arguments for `envs.registry.make` and `envs.registry.env_spec`."""
    return {**self.kwargs, **({"wrappers": self.wrappers} if self.wrappers else {})}

  @model_validator(mode="after")
  def _names_code_in_wrappers_only(self) -> "EnvConfig":
    if "wrappers" in self.kwargs:
      raise ValueError("kwargs.wrappers: not an option; set env.wrappers")
    return self


class NetworkConfig(Section):
  """The network; all kinds have one interface, `Model`."""

  kind: NetworkName = Field(
    "conv_latent",
    description="resnet: residual convolutions throughout, as in the thesis; mlp: dense layers, for "
    "vector observations; conv_latent: one convolution (for frames of 40 cells or more, strided ones), then "
    "dense layers on a hidden vector; or your own: a registered name or module:function (docs/plugins.md)",
  )
  norm: Literal["layer", "batch", "none"] = Field(
    "layer", description="normalization; layer: equal in acting and training; batch: as in the thesis"
  )
  channels: PositiveInt = Field(16, description="resnet, conv_latent: convolution channels")
  num_representation_blocks: NonNegativeInt = Field(
    6, description="resnet: residual blocks of the representation network"
  )
  num_dynamics_blocks: NonNegativeInt = Field(
    1,
    description="residual blocks of the dynamics network; mlp and conv_latent use at least one; resnet "
    "has one more, which computes the next state",
  )
  num_prediction_blocks: NonNegativeInt = Field(
    1, description="residual blocks of the prediction network, before its heads"
  )
  latent_size: PositiveInt = Field(256, description="mlp, conv_latent: size of the hidden state")
  head_size: PositiveInt = Field(128, description="width of the hidden layer of each head")
  conv_policy: bool = Field(
    False,
    description="resnet, board games: a 1×1 convolution of the hidden state adds to the logits of moves, at "
    "their cells or columns (docs/board_games.md)",
  )
  action_offsets: bool = Field(
    False,
    description="resnet, games whose moves act at cells: in the dynamics network each cell receives a "
    "learned vector for its offset from the move (docs/board_games.md)",
  )
  batch_norm_decay: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
    0.99,
    description="norm=batch, center_frames: decay per update of the averages that normalize when acting "
    "(with center_frames also in training)",
  )
  mover_view: bool = Field(
    False,
    description="board games: show the network the pieces of the player to move in the planes of player 0, "
    "and the other's in those of player 1; false: as the environment shows them (docs/board_games.md)",
  )
  center_frames: bool = Field(
    False,
    description="subtract each cell's running mean from the frames and scale them to a variance of about 1; "
    "for frames with a constant background, as in Atari",
  )


class ScalarTransformConfig(Section):
  """The support Z of categorical values and rewards, in transformed units."""

  support_min: int = Field(-30, description="smallest category; smaller values are clipped to it")
  support_max: int = Field(
    30,
    description="largest category, to which larger values and rewards are clipped; with the default epsilon, "
    "30 stands for about 905 in env units",
  )
  epsilon: PositiveFloat = Field(
    0.001, description="ε of φ(x) = sign(x)(√(|x|+1) − 1) + εx, which maps env units to categories"
  )

  @model_validator(mode="after")
  def _ordered(self) -> "ScalarTransformConfig":
    if not self.support_min <= 0 <= self.support_max or self.support_min == self.support_max:
      raise ValueError(
        f"support_min={self.support_min}, support_max={self.support_max}: must hold 0 between them"
      )
    return self


class TargetsConfig(Section):
  """Training targets. The thesis has L=4, K=5, n=10 and a discount of 0.997."""

  history_length: PositiveInt = Field(1, description="L: frames, with their actions, that the network sees")
  unroll_steps: NonNegativeInt = Field(
    5, description="K: steps that the dynamics network is trained to unroll; alphazero: 0; others: at least 1"
  )
  n_step: PositiveInt = Field(
    10,
    description="n: number of rewards in a value target, which bootstraps from the search value after them",
  )
  search_value_age: PositiveInt | None = Field(
    None,
    description="age in environment steps from which the value target is the search value, which reanalyze "
    "renews, and not the n-step return; null: never; needs reanalyze.ratio above 0",
  )
  discount: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
    0.997, description="γ per environment step; 1 suits games that end within a few dozen moves"
  )


class ReplayConfig(Section):
  """The replay buffer. Priorities follow from δ, the error of the network's value at a start step."""

  capacity: PositiveInt = Field(1_000_000, description="number of steps kept, over all environments")
  window_share: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
    1.0,
    description="sample only from the newest steps: this share of all environment steps so far, at least "
    "window_min and at most capacity; 1: all stored steps",
  )
  window_min: PositiveInt = Field(
    32_768, description="window_share below 1: smallest number of steps to sample from"
  )
  sampling: Literal["uniform", "proportional", "rank"] = Field(
    "rank", description="how start steps are drawn; uniform was better in Space Invaders with reanalyze"
  )
  priority_exponent: NonNegativeFloat = Field(0.6, description="α of prioritized sampling")
  importance_exponent: NonNegativeFloat = Field(1.0, description="β of the importance ratio; the thesis: 1")
  normalize_importance: bool = Field(False, description="divide a batch's importance ratios by their maximum")
  priority_epsilon: PositiveFloat = Field(1e-3, description="proportional: constant added to δ")
  refresh_priorities: bool = Field(
    True, description="after an update, replace the δ of the batch's start steps"
  )
  rank_refresh_updates: PositiveInt = Field(
    200, description="rank: number of batches between two sorts by priority"
  )
  min_steps_to_learn: PositiveInt = Field(5_000, description="number of steps stored before training starts")
  max_refused_segments: PositiveInt = Field(
    20, description="the run ends after this number of consecutive rejected segments of one worker"
  )

  @property
  def refreshes_priorities(self) -> bool:
    """Whether replay gets a new δ after an update: this is enabled, and the sampling uses priorities."""
    return self.refresh_priorities and self.sampling != "uniform"


class LearningRateConfig(Section):
  """The learning rate by learner step: warm-up, then decay over `decay_steps` (null: no decay).

  With `decay_steps: budget` the decay ends at max_env_steps. If max_wall_s ends the run earlier, the rate is
  still above `end`. A run that is resumed with another max_env_steps continues on the schedule of the new
  value.
  """

  kind: Literal["constant", "cosine", "linear"] = Field(
    "constant", description="shape of the decay; constant: none"
  )
  peak: PositiveFloat = Field(1e-3, description="rate after the warm-up")
  end: NonNegativeFloat = Field(0.0, description="rate after the decay")
  warmup_steps: NonNegativeInt = Field(0, description="learner steps of linear rise from 0 to peak; 0: none")
  decay_steps: PositiveInt | Literal["budget"] | None = Field(
    None,
    description="cosine, linear: learner steps from peak to end; budget: all of the run's learner steps "
    "after the warm-up. A run makes about (max_env_steps - replay.min_steps_to_learn) × samples_per_step / "
    "batch_size learner steps",
  )

  @model_validator(mode="after")
  def _has_length(self) -> "LearningRateConfig":
    if self.kind != "constant" and self.decay_steps is None:
      raise ValueError(f"decay_steps: needed with kind={self.kind}")
    return self


class LearnerConfig(Section):
  """Loss, optimizer, updates and augmentation. The thesis, 4.3.8, defines the loss coefficients."""

  batch_size: PositiveInt = Field(256, description="number of targets in one update")
  updates_per_call: PositiveInt = Field(8, description="number of updates per call of the parameter server")
  samples_per_step: PositiveFloat = Field(4.0, description="sample reuse: targets used per environment step")
  optimizer: Literal["adam", "adamw"] = Field("adamw", description="adamw: adam with weight_decay")
  learning_rate: LearningRateConfig = LearningRateConfig()
  weight_decay: NonNegativeFloat = Field(1e-4, description="adamw: decay of weights, not of biases and norms")
  max_grad_norm: PositiveFloat = Field(
    5.0, description="maximum norm of the gradient of all parameters; a larger one is scaled down"
  )
  value_coef: NonNegativeFloat = Field(0.25, description="weight of the value loss; the policy loss has 1")
  reward_coef: NonNegativeFloat = Field(1.0, description="weight of the reward loss")
  consistency_coef: NonNegativeFloat = Field(
    2.0, description="weight of the self-consistency loss; 0: off, which makes updates cheaper"
  )
  l2_coef: NonNegativeFloat = Field(0.0, description="weight of the squared norm of all parameters; 0: off")
  extra_losses: LossNames = Field((), description="loss terms of your own, by name or module:function")
  symmetries: bool = Field(
    False,
    description="board games: transform each sampled target by a random symmetry of the environment, such as "
    "the reflection in Connect Four",
  )
  scale_reward_loss: bool = Field(True, description="divide unrolled reward losses by K; the thesis: false")
  dynamics_gradient_scale: Probability = Field(
    0.5, description="factor on the gradient into each unrolled hidden state; MuZero: 0.5"
  )
  target_update_period: PositiveInt = Field(
    500,
    description="learner steps between two copies of the parameters to the target network; reanalyze "
    "searches with it, and consistency_from_target, workers.network and evaluation.network can select it",
  )
  target_decay: Decay = Field(
    0.0,
    description="0: the target network is a copy of the parameters; otherwise it is their exponential moving "
    "average with this decay per update, or a smaller one during the first updates",
  )
  consistency_from_target: bool = Field(
    False, description="compute the target of the self-consistency loss with the target network"
  )
  consistency_warmup_steps: NonNegativeInt = Field(
    0, description="learner steps of linear rise of consistency_coef from 0; 0: none"
  )
  max_shift: NonNegativeInt = Field(
    0,
    description="augmentation: shift the frames of each sample by up to this number of cells on each axis; "
    "DrQ: 4 for Atari; 0: off",
  )
  intensity_jitter: NonNegativeFloat = Field(
    0.0,
    description="augmentation: scale the frames of each sample by 1 + intensity_jitter · ε, ε normal within "
    "−2 … 2; SPR: 0.05; 0: off",
  )
  max_skipped_updates: PositiveInt = Field(
    20,
    description="after this number of consecutive updates with a non-finite loss or gradient, the run "
    "rolls back to its last checkpoint's parameters; the second time, the run ends",
  )

  @property
  def augments(self) -> bool:
    """Whether the frames of a training batch are augmented."""
    return self.max_shift > 0 or self.intensity_jitter > 0


class WorkersConfig(Section):
  """Training workers and their environments."""

  num_workers: PositiveInt = Field(
    1, description="number of training workers; with runtime=local they act in turn"
  )
  num_envs: PositiveInt = Field(64, description="number of environments in each worker")
  segment_length: PositiveInt = Field(16, description="number of vector steps in one call of a worker")
  rollout: Literal["auto", "scan", "step"] = Field(
    "auto",
    description="scan: one compiled rollout (environments written in JAX); step: "
    "environment and search alternate; auto: scan where possible, which excludes max_random_starts above 0",
  )
  max_random_starts: NonNegativeInt = Field(
    0,
    description="start training episodes with k random legal actions, k ~ U{0 … max_random_starts}, "
    "to learn from positions that good play avoids; these actions are not trained on; not with rollout=scan",
  )
  num_holding_envs: NonNegativeInt = Field(
    0,
    description="environments of each worker that often repeat the last action, so that actions last 2 to 64 "
    "steps on average: temporally extended exploration; all of them if num_envs is smaller; not in self-play "
    "of two players",
  )
  max_env_faults: PositiveInt = Field(
    10,
    description="an environment that raises or hangs is created again with a new seed; the run ends after "
    "this number of consecutive faults of one environment; a finished episode resets the count",
  )
  env_timeout_s: PositiveFloat | None = Field(
    60.0, description="time limit of a step or reset, after which the environment counts as hung; null: none"
  )
  network: Literal["online", "target"] = Field(
    "online", description="act with the learner's parameters or with the target network"
  )
  resources: ActorResources = ActorResources(num_cpus=0.5, niceness=5)


class EvaluationConfig(Section):
  """Evaluation episodes, which have fixed seeds: during a run, at its end, and in `moozi evaluate`."""

  period_env_steps: PositiveInt = Field(
    200_000, description="environment steps between two evaluations; the last step has the final one only"
  )
  episodes: PositiveInt = Field(10, description="number of episodes in an evaluation during the run")
  num_envs: PositiveInt = Field(10, description="number of episodes played in parallel")
  max_random_starts: NonNegativeInt = Field(
    8, description="start episodes with k random legal actions, k ~ U{0 … max_random_starts}"
  )
  seed: Seed = Field(20_000_003, description="seed of the evaluation episodes, independent of the run's seed")
  noise_free: bool = Field(
    True,
    description="planners.test without noise: temperature, dirichlet_fraction, gumbel_scale and "
    "random_action_prob are 0 and root_prior_temperature is 1, whatever it sets; false: planners.test "
    "unchanged, as in the thesis",
  )
  max_episode_steps: PositiveInt = Field(
    10_000, description="step limit of an evaluation episode, in addition to the environment's own"
  )
  final_episodes: PositiveInt = Field(100, description="number of episodes in the evaluation at the end")
  opponent: PlayerName = Field(
    "random",
    description="two players: who plays the other seat: random, self, mcts or mcts:N with N simulations (in "
    "games of OpenSpiel, and in a user's own with max_moves), run:PATH[@checkpoint], zoo:NAME, "
    "prior:PATH[@checkpoint] (a run's network without search), approach:NAME (the last complete run of an "
    "algorithm), a registered name, or module:function",
  )
  network: Literal["online", "target"] = Field(
    "online",
    description="play with the learner's parameters or with the target network, in evaluations and wherever "
    "a checkpoint plays",
  )
  opponent_simulations: PositiveInt = Field(100, description="mcts: simulations per search of the opponent")
  gif: bool = Field(
    True, description="write a GIF of one episode of each evaluation, and the tiled GIF of several episodes"
  )
  gif_max_frames: PositiveInt = Field(300, description="maximum number of frames of a GIF")
  gif_tiles: Annotated[int, Field(ge=0, le=64)] = Field(
    9, description="number of episodes in the tiled GIF; 0: no tiled GIF"
  )
  resources: ActorResources = ActorResources(num_cpus=0.125, niceness=10)

  @property
  def opponent_name(self) -> str:
    """The opponent, where plain `mcts` has its number of simulations: `mcts:100`."""
    return f"mcts:{self.opponent_simulations}" if self.opponent == "mcts" else self.opponent


class CheckpointConfig(Section):
  """The checkpoints to write and to keep, and the one to start from."""

  start_from: str | None = Field(
    None,
    description="start with the training state of this checkpoint's folder, or of a run's last checkpoint",
  )

  period_s: PositiveFloat = Field(120.0, description="seconds between two checkpoints")
  first_s: PositiveFloat | None = Field(
    15.0,
    description="seconds from a new run's first step to its first checkpoint; null: period_s applies",
  )
  keep_last: PositiveInt = Field(
    3, description="number of latest checkpoints to keep; a run can resume from each"
  )
  keep_best: bool = Field(
    True,
    description="keep the checkpoint whose evaluation has the highest lower bound (95%) of the mean return",
  )
  milestones_env_steps: PositiveInt | None = Field(
    250_000, description="environment steps between two checkpoints that are always kept; null: none"
  )


class LoggingConfig(Section):
  """Metrics, experiment trackers and display."""

  period_s: PositiveFloat = Field(5.0, description="seconds between two lines (ticks) in metrics.jsonl")
  tensorboard: bool = Field(True, description="also write TensorBoard's files, with histograms and GIFs")
  wandb: bool = Field(
    False, description="also log scalars to Weights & Biases, offline, in wandb/ beside the run directory"
  )
  mlflow: bool = Field(False, description="also log scalars to MLflow, in mlflow.db beside the run directory")
  histogram_period_updates: PositiveInt | None = Field(
    2_000, description="learner steps between two histograms in TensorBoard; null: none"
  )
  parameter_histograms: bool = Field(False, description="also write histograms of each layer's parameters")
  progress: Literal["auto", "live", "plain", "none"] = Field(
    "auto",
    description="display on standard error; live: redrawn in place; plain: lines; auto: live on a terminal, "
    "else plain",
  )

  @property
  def histogram_period(self) -> int | None:
    """Learner steps between two histograms; None without TensorBoard."""
    return self.histogram_period_updates if self.tensorboard else None


class TimelineConfig(Section):
  """The recording of each actor's spans, for `moozi timeline`."""

  seconds: NonNegativeFloat = Field(
    60.0, description="seconds recorded from the first update of the run, or of a resumed run; 0: none"
  )


class RayConfig(Section):
  """The Ray runtime; with `address` null, a local one that listens on loopback only."""

  address: str | None = Field(
    None, description="host:port of an existing Ray cluster to join; null: start a local one"
  )
  num_cpus: PositiveInt | None = Field(None, description="cores of the local Ray; null: all of the machine")
  num_gpus: NonNegativeInt | None = Field(None, description="GPUs of the local Ray; null: all of the machine")
  object_store_mib: PositiveInt = Field(512, description="MiB of shared memory for the local Ray's objects")
  segments_in_flight: PositiveInt = Field(2, description="number of calls queued at each training worker")
  batches_in_flight: PositiveInt = Field(2, description="number of calls queued at the parameter server")
  publish_period_updates: PositiveInt = Field(
    64,
    description="learner steps between two publications of parameters; also of the target network, with "
    "learner.target_decay",
  )
  max_restarts: NonNegativeInt = Field(3, description="maximum consecutive restarts of a failed actor")
  learner: ActorResources = ActorResources(num_cpus=1.0, num_threads=0)
  replay: ActorResources = ActorResources(num_cpus=0.125)


class Config(Section):
  """The whole configuration of a run."""

  seed: Seed = Field(0, description="seed of the run; each part derives its own from it")
  algorithm: Literal["muzero", "alphazero", "ppo", "q_learning"] = Field(
    "muzero",
    description="alphazero: MuZero's search with the game's true rules in place of a learned model; it needs "
    "targets.unroll_steps=0 and a game without chance and hidden information. ppo, q_learning: baselines, "
    "each with its own section; they always run in one process and ignore `runtime`",
  )
  runtime: Literal["ray", "local"] = Field(
    "ray",
    description="ray: actors in parallel processes; local: one process, and the same seed gives the same "
    "parameters to the bit",
  )
  max_env_steps: PositiveInt = Field(
    1_000_000,
    description="environment steps at which training ends; each frame counts, also the first of an episode: "
    "n actions and a reset are n + 1 steps",
  )
  max_wall_s: PositiveFloat | None = Field(
    None,
    description="seconds, over all resumes, after which training ends; evaluations count; null: no limit",
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
  opponents: OpponentsConfig = OpponentsConfig()
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

  @property
  def num_updates(self) -> int:
    """Number of learner steps of a run that loses no steps: `budget.num_updates`."""
    return num_updates(self)

  @property
  def decay_steps(self) -> int | None:
    """`learner.learning_rate.decay_steps`, with `budget` replaced by the number of learner steps."""
    rate = self.learner.learning_rate
    if rate.decay_steps == "budget":
      return max(1, self.num_updates - rate.warmup_steps)
    return rate.decay_steps

  def _check_searches(self) -> None:
    """Raises ValueError if a search in use needs chance nodes that the model lacks, or is gumbel with the
    mean as root value.
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
    if is_table or self.algorithm == "ppo":
      agent = "q_learning.kind=table" if is_table else "algorithm=ppo"
      for name in ("workers", "evaluation"):
        if getattr(self, name).network == "target":
          raise ValueError(f"{name}.network=target: {agent} has no target network; must be online")

  @property
  def searches(self) -> bool:
    """Whether the agent searches, with a model or with the game's true rules. Baselines do not search."""
    return self.algorithm in ("muzero", "alphazero")

  @property
  def has_one_process(self) -> bool:
    """Whether acting, learning and evaluations take turns in one process; the baselines ignore `runtime`."""
    return self.runtime == "local" or not self.searches

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
  def num_past_lanes(self) -> int:
    """Number of environments of a training worker in which a past self plays.

    The number is even, so that the past self plays each seat equally often.
    """
    num_envs, share = self.workers.num_envs, self.opponents.past_share
    return 2 * min(num_envs // 2, max(1, round(share * num_envs / 2))) if share else 0

  @property
  def past_selves_text(self) -> str:
    """What `opponents.past_share` becomes, for the line at the start of a run; empty without past selves."""
    if not self.num_past_lanes:
      return ""
    num_past, num_envs, share = self.num_past_lanes, self.workers.num_envs, self.opponents.past_share
    return (
      f"; past selves play in {num_past} of each worker's {num_envs} environments ({num_past / num_envs:.3g} "
      f"with opponents.past_share={share:g})"
    )

  @model_validator(mode="after")
  def _fits(self) -> "Config":
    self._check_networks()
    starts = self.workers.max_random_starts
    if starts and self.workers.rollout == "scan":
      raise ValueError(f"workers.max_random_starts={starts}: must be 0 with workers.rollout=scan")
    holding = self.workers.num_holding_envs
    muzero, searching = ("muzero",), ("muzero", "alphazero")
    off_policy = (*searching, "q_learning")
    for key, is_used, algorithms in (
      (f"workers.num_holding_envs={holding}", holding > 0, ("muzero", "q_learning")),
      (f"offline.trajectories={self.offline.trajectories}", self.offline.trajectories is not None, searching),
      (f"learner.extra_losses={list(self.learner.extra_losses)}", bool(self.learner.extra_losses), searching),
      ("learner.symmetries=true", self.learner.symmetries, searching),
      (
        f"targets.search_value_age={self.targets.search_value_age}",
        self.targets.search_value_age is not None,
        muzero,
      ),
      # Replay has frames, but the true rules continue from positions.
      (f"reanalyze.ratio={self.reanalyze.ratio:g}", self.reanalyze.ratio > 0, muzero),
      (f"chance.codes={self.chance.codes}", self.chance.codes > 0, muzero),
      (f"opponents.past_share={self.opponents.past_share:g}", self.opponents.past_share > 0, off_policy),
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
    age = self.targets.search_value_age
    if age is not None and not self.reanalyze.ratio:
      raise ValueError(f"targets.search_value_age={age}: needs reanalyze.ratio above 0")
    if age is not None and not self.reanalyze.search:
      # Without a search the target would be the network's own value, without any reward.
      raise ValueError(f"targets.search_value_age={age}: needs reanalyze.search=true")
    if age is not None and self.chance.codes:
      # A return is a value of the action that was played, a search value is not.
      raise ValueError(f"targets.search_value_age={age}: must be null with chance.codes={self.chance.codes}")
    self._check_searches()
    if self.opponents.past_share and self.workers.num_envs < 2:
      raise ValueError(
        f"workers.num_envs={self.workers.num_envs}: must be at least 2 with opponents.past_share, so that "
        "a past self plays each seat"
      )
    if self.chance.codes and self.network.kind not in ("mlp", "conv_latent"):
      raise ValueError(
        f"chance.codes={self.chance.codes}: network.kind={self.network.kind} has no chance nodes; must be "
        "mlp or conv_latent"
      )
    if self.trajectories.save and not self.num_acting_workers:
      raise ValueError("trajectories.save=true: no worker acts with offline.fraction=1")
    if holding and not self.num_acting_workers:
      raise ValueError(f"workers.num_holding_envs={holding}: no worker acts with offline.fraction=1")
    if self.offline.trajectories is not None and self.num_acting_workers:
      for key, count in (
        ("learner.batch_size", self.learner.batch_size),
        ("reanalyze.batch_size", self.reanalyze.batch_size),
      ):
        if count < 2:
          raise ValueError(f"{key}={count}: must be at least 2 with offline.fraction below 1")
    if self.algorithm == "ppo":
      return self  # it has no replay
    num_lanes = self.workers.num_workers * self.workers.num_envs
    lane = self.replay.capacity // num_lanes
    need = self.targets.history_length + self.targets.unroll_steps + self.targets.n_step
    if lane <= need + self.workers.segment_length:
      raise ValueError(
        f"replay.capacity={self.replay.capacity}: has {lane} steps for each of {num_lanes} environments; "
        f"must have more than {need + self.workers.segment_length} (history + unroll + n_step + segment)"
      )
    max_steps = (lane - need) * num_lanes
    for key, value in (
      ("replay.min_steps_to_learn", self.replay.min_steps_to_learn),
      ("learner.batch_size", self.learner.batch_size),
    ):
      if value > max_steps:
        raise ValueError(f"{key}={value}: replay.capacity={self.replay.capacity} allows at most {max_steps}")
    window = self.replay.window_min // num_lanes
    reach = self.targets.unroll_steps + self.targets.n_step
    if self.replay.window_share < 1 and (window - reach) * num_lanes < self.learner.batch_size:
      least = (-(-self.learner.batch_size // num_lanes) + reach) * num_lanes
      raise ValueError(
        f"replay.window_min={self.replay.window_min}: has too few steps in which a target can start; must be "
        f"at least {least} with {num_lanes} environments and learner.batch_size={self.learner.batch_size}"
      )
    return self
