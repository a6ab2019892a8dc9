"""Sections of `moozi.core.config` for the searches."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from moozi.core.config.section import (
  NonNegativeFloat,
  NonNegativeInt,
  PositiveFloat,
  PositiveInt,
  Probability,
  SearchName,
  Section,
)

VISIT_SEARCHES = ("puct", "stochastic")
"""Searches that choose actions by visit counts, with a temperature."""
GUMBEL_SEARCHES = ("gumbel", "stochastic_gumbel")
"""Searches with Gumbel noise at the root and sequential halving."""
CHANCE_SEARCHES = ("stochastic", "stochastic_gumbel")
"""Searches with chance nodes."""


NOT_INHERITED = ("temperature_drop", "dropped_temperature")
"""Keys of acting, which `planners.reanalyze` does not copy from `planners.train`."""


class TemperaturePoint(Section):
  """The acting temperature from `env_steps` on (piecewise constant)."""

  env_steps: NonNegativeInt = Field(description="environment steps from which the temperature applies")
  temperature: NonNegativeFloat = Field(description="temperature from then on")


class PlannerConfig(Section):
  """A search. `temperature` is a number or a schedule over environment steps."""

  algorithm: SearchName = Field(
    "gumbel",
    description="gumbel: Gumbel MuZero, for few simulations; puct: MuZero's search, as in the thesis; "
    "stochastic, stochastic_gumbel: puct and gumbel with chance nodes (needs chance.codes); or your own: a "
    "registered name or module:function (docs/plugins.md)",
  )
  num_simulations: PositiveInt = Field(
    16,
    description="number of simulations per search; with chance nodes, a simulation evaluates an action or an "
    "outcome",
  )
  max_depth: PositiveInt | None = Field(
    None,
    description="maximum depth of a simulation; null: only num_simulations limits it; with chance nodes, "
    "an action and its outcome are two levels",
  )
  max_num_considered_actions: PositiveInt = Field(
    16, description="gumbel, stochastic_gumbel: largest number of root actions in sequential halving"
  )
  num_sampled_actions: PositiveInt = Field(
    16,
    description="number of joint actions that each node of a search samples from the policy, where an "
    "environment has more than 32 of them",
  )
  gumbel_scale: NonNegativeFloat = Field(
    1.0, description="gumbel, stochastic_gumbel: scale of the noise; 0: none"
  )
  gumbel_value_scale: PositiveFloat = Field(
    0.1,
    description="gumbel, stochastic_gumbel: c_scale, a factor of the weight of normalized Q-values against "
    "the prior's logits",
  )
  gumbel_maxvisit_init: NonNegativeFloat = Field(
    50.0,
    description="gumbel, stochastic_gumbel: c_visit; normalized Q-values have the weight c_scale · (c_visit "
    "+ largest visit count)",
  )
  dirichlet_fraction: Probability = Field(
    0.0,
    description="puct, stochastic: share of Dirichlet noise in the root prior; the share is less if some "
    "actions are illegal",
  )
  dirichlet_alpha: PositiveFloat = Field(
    0.3,
    description="puct, stochastic: α of the Dirichlet noise; smaller values concentrate the noise on fewer "
    "actions",
  )
  pb_c_init: NonNegativeFloat = Field(1.25, description="puct, stochastic: c1 of the exploration term")
  pb_c_base: PositiveFloat = Field(19652.0, description="puct, stochastic: c2 of the exploration term")
  temperature: NonNegativeFloat | tuple[TemperaturePoint, ...] = Field(
    1.0,
    description="puct, stochastic: actions are drawn in proportion to visits^(1/temperature); 0: the most "
    "visited; a list of {env_steps, temperature} is a schedule. The Gumbel searches do not read it",
  )
  temperature_drop: PositiveInt | None = Field(
    None,
    description="train: number of first moves of a game that are chosen with temperature; later moves have "
    "dropped_temperature; in self-play, moves of both players count, otherwise the agent's own; null: all "
    "moves; AlphaGo Zero: 30",
  )
  dropped_temperature: NonNegativeFloat = Field(
    0.0, description="train: temperature after the first temperature_drop moves of a game"
  )
  random_action_prob: Probability = Field(
    0.0,
    description="probability of a uniformly random legal action in place of the chosen one, so that training "
    "includes states that a confident policy would not reach; the policy target does not change",
  )
  average_symmetries: bool = Field(
    False,
    description="board games: average the prior and the value of the root (alphazero: of every node) over "
    "the environment's symmetries; these inferences evaluate one frame per symmetry",
  )
  q_range_floor: PositiveFloat = Field(
    0.1,
    description="smallest divisor of Q-values, in env units: Q-values are divided by the larger of their "
    "range and this value; mctx: 1e-8",
  )
  root_prior_temperature: PositiveFloat = Field(
    1.0,
    description="divisor of the prior's logits at the root; above 1, the prior has more entropy there",
  )
  root_value: Literal["mean", "improved"] | None = Field(
    None,
    description="mean: average over visits; improved: mean of the completed Q-values under the search "
    "policy; null: mean with puct and stochastic, improved with any other search",
  )

  @model_validator(mode="after")
  def _consistent(self) -> "PlannerConfig":
    if self.algorithm in GUMBEL_SEARCHES and self.dirichlet_fraction > 0:
      raise ValueError(
        f"dirichlet_fraction={self.dirichlet_fraction:g}: must be 0 with algorithm={self.algorithm} "
        "(own noise)"
      )
    if self.temperature_drop is not None and self.algorithm in GUMBEL_SEARCHES:
      raise ValueError(
        f"temperature_drop={self.temperature_drop}: needs algorithm=puct or stochastic; gumbel chooses "
        "actions by its own noise"
      )
    if isinstance(self.temperature, tuple):
      if self.algorithm in GUMBEL_SEARCHES:
        raise ValueError(
          "temperature: a schedule needs algorithm=puct or stochastic; gumbel chooses actions by its own "
          "noise"
        )
      steps = [p.env_steps for p in self.temperature]
      if not steps or steps[0] != 0 or steps != sorted(set(steps)):
        raise ValueError(f"temperature: schedule at env_steps {steps}: must start at 0 and rise")
    return self

  @property
  def has_improved_root_value(self) -> bool:
    """Whether the root value is the mean of the completed Q-values under the search policy."""
    return (self.root_value or ("mean" if self.algorithm in VISIT_SEARCHES else "improved")) == "improved"

  @property
  def is_noise_free(self) -> bool:
    """Whether the settings of noise and the temperature are 0, as in a result of `noise_free`."""
    return not any((self.dirichlet_fraction, self.random_action_prob, self.temperature, self.gumbel_scale))

  def noise_free(self, num_simulations: int | None = None) -> "PlannerConfig":
    """Returns the same search without Dirichlet noise, Gumbel noise and random actions.

    The temperature is 0, the temperature of the root prior is 1, and `num_simulations`, if given, is new.
    """
    return self.model_copy(
      update={
        "dirichlet_fraction": 0.0,
        "random_action_prob": 0.0,
        "temperature": 0.0,
        "temperature_drop": None,
        "gumbel_scale": 0.0,
        "root_prior_temperature": 1.0,
        "num_simulations": num_simulations or self.num_simulations,
      }
    )


class PlannersConfig(Section):
  """The searches of training, evaluation (`test`) and reanalyze.

  Keys that `reanalyze` does not set, other than temperature_drop and dropped_temperature, are copied from
  `train` once, when the configuration is read at the start of the run (`io.config`).
  """

  train: PlannerConfig = PlannerConfig()
  test: PlannerConfig = PlannerConfig(gumbel_scale=0.0, temperature=0.0)
  reanalyze: PlannerConfig | None = Field(
    None,
    description="search of stored positions; null: the search of train; missing keys have the values of "
    "train at the start of the run, except temperature_drop, which must be null, and dropped_temperature",
  )

  @field_validator("test")
  @classmethod
  def _has_no_schedule(cls, test: PlannerConfig) -> PlannerConfig:
    if isinstance(test.temperature, tuple):
      raise ValueError("temperature: must be a number in planners.test, for evaluations at any step")
    if test.temperature_drop is not None:
      raise ValueError(f"temperature_drop={test.temperature_drop}: must be null in planners.test")
    return test

  @field_validator("reanalyze")
  @classmethod
  def _has_no_drop(cls, reanalyze: PlannerConfig | None) -> PlannerConfig | None:
    if reanalyze is not None and reanalyze.temperature_drop is not None:
      raise ValueError(
        f"temperature_drop={reanalyze.temperature_drop}: must be null in planners.reanalyze, which chooses "
        "no actions"
      )
    return reanalyze

  @property
  def for_reanalyze(self) -> PlannerConfig:
    """The search of stored positions."""
    return self.train if self.reanalyze is None else self.reanalyze
