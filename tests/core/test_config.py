"""Tests of the configuration's rules; tests/io/test_config.py tests loading."""

import pydantic
import pytest

from moozi.core.config import (
  Config,
  LearnerConfig,
  LearningRateConfig,
  PlannerConfig,
  ReplayConfig,
  ScalarTransformConfig,
  TemperaturePoint,
)
from moozi.core.config.budget import limits_of_rate, takes_time_share
from moozi.core.config.learning import DiscountPoint
from moozi.core.config.ppo import PPOConfig
from moozi.core.config.q_learning import QLearningConfig


def test_sections_are_frozen_and_reject_unknown_keys():
  config = Config()
  with pytest.raises(pydantic.ValidationError, match="frozen"):
    config.seed = 1  # type: ignore[misc]
  with pytest.raises(pydantic.ValidationError, match="extra"):
    Config.model_validate({"sede": 1})


def test_noise_free_keeps_other_settings():
  planner = PlannerConfig(
    algorithm="puct",
    dirichlet_fraction=0.2,
    temperature=1.0,
    num_simulations=9,
    pb_c_init=2.0,
    root_prior_temperature=1.2,
  )
  quiet = planner.noise_free()
  assert (quiet.dirichlet_fraction, quiet.temperature, quiet.gumbel_scale) == (0.0, 0.0, 0.0)
  assert quiet.root_prior_temperature == 1.0
  assert (quiet.num_simulations, quiet.pb_c_init) == (9, 2.0)
  assert planner.noise_free(num_simulations=4).num_simulations == 4


def test_gumbel_rejects_dirichlet_noise():
  with pytest.raises(pydantic.ValidationError, match="dirichlet_fraction"):
    PlannerConfig(algorithm="gumbel", dirichlet_fraction=0.1)


@pytest.mark.parametrize("steps", [[], [1], [0, 5, 5], [0, 9, 3]])
def test_temperature_schedule_starts_at_zero_and_rises(steps):
  with pytest.raises(pydantic.ValidationError, match="schedule"):
    PlannerConfig(algorithm="puct", temperature=tuple({"env_steps": s, "temperature": 1.0} for s in steps))  # type: ignore[misc]


@pytest.mark.parametrize("ends", [(3, 3), (0, 0), (1, 5), (-5, -1), (5, -5)])
def test_support_contains_zero(ends):
  with pytest.raises(pydantic.ValidationError, match="hold 0"):
    ScalarTransformConfig(support_min=ends[0], support_max=ends[1])


@pytest.mark.parametrize(
  "overrides",
  [
    {"replay": {"min_steps_to_learn": 10**6, "capacity": 10**5}},
    {"learner": {"batch_size": 10**6}, "replay": {"capacity": 10**5}},
  ],
)
def test_rejects_more_steps_than_replay_holds(overrides):
  with pytest.raises(pydantic.ValidationError, match="allows at most"):
    Config.model_validate(overrides)


def test_temperature_schedule_needs_puct():
  points = ({"env_steps": 0, "temperature": 1.0},)
  assert PlannerConfig(algorithm="puct", temperature=points).temperature[0].temperature == 1.0
  with pytest.raises(pydantic.ValidationError, match="algorithm=puct"):
    PlannerConfig(algorithm="gumbel", temperature=points)


def test_learning_rate_decay_needs_steps():
  with pytest.raises(pydantic.ValidationError, match="decay_steps"):
    LearningRateConfig(kind="cosine")
  assert LearningRateConfig(kind="cosine", decay_steps=10).decay_steps == 10


@pytest.mark.parametrize(
  ("decay_steps", "warmup_steps", "expected"),
  [
    *((None, 0, None), (7, 5, 7)),
    *(("budget", 0, 46_800), ("budget", 800, 46_000), ("budget", 50_000, 1), ("progress", 800, 46_000)),
  ],
)
def test_a_learning_rate_decays_over_the_budget(decay_steps, warmup_steps, expected):
  rate = LearningRateConfig(decay_steps=decay_steps, warmup_steps=warmup_steps)
  config = Config(max_env_steps=3_000_000, learner=LearnerConfig(learning_rate=rate))
  # (3,000,320 - 5,120) steps in whole rounds, 4 samples per step, whole calls of 8 batches of 256
  assert config.num_updates == 46_800
  assert config.decay_steps == expected


@pytest.mark.parametrize(
  ("settings", "limits", "takes"),
  [
    ({}, [], False),
    ({"kind": "cosine", "decay_steps": 7}, [], False),
    ({"kind": "constant", "decay_steps": "progress"}, [], False),
    ({"kind": "cosine", "decay_steps": "budget"}, ["max_env_steps"], False),
    ({"kind": "linear", "decay_steps": "progress"}, ["max_env_steps", "max_wall_s"], True),
  ],
)
def test_limits_until_which_a_learning_rate_falls(settings, limits, takes):
  timed = Config(max_wall_s=60, learner=LearnerConfig(learning_rate=LearningRateConfig(**settings)))
  for algorithm in ("muzero", "q_learning"):
    config = timed.model_copy(update={"algorithm": algorithm})
    assert (list(limits_of_rate(config)), takes_time_share(config)) == (limits, takes)
    without = config.model_copy(update={"max_wall_s": None})
    assert (list(limits_of_rate(without)), takes_time_share(without)) == (limits[:1], False)
  for other in ({"algorithm": "my_module:make"}, {"q_learning": QLearningConfig(kind="table")}):
    config = timed.model_copy(update={"algorithm": "q_learning"} | other)
    assert (limits_of_rate(config), takes_time_share(config)) == ((), False)


@pytest.mark.parametrize(
  ("settings", "limits"),
  [
    ({"anneal_learning_rate": False, "anneal_by": "progress"}, []),
    ({"anneal_by": "steps"}, ["max_env_steps"]),
    ({"anneal_by": "progress"}, ["max_env_steps", "max_wall_s"]),
    (
      {"anneal_learning_rate": False, "anneal_clip_range": True, "anneal_by": "progress"},
      ["max_env_steps", "max_wall_s"],
    ),
  ],
)
def test_limits_until_which_ppo_anneals(settings, limits):
  config = Config(algorithm="ppo", max_wall_s=60, ppo=PPOConfig(**settings))
  assert (list(limits_of_rate(config)), takes_time_share(config)) == (limits, False)


def test_lane_holds_more_than_one_target():
  with pytest.raises(pydantic.ValidationError, match=r"replay\.capacity=640"):
    Config(replay=ReplayConfig(capacity=640))


def test_smallest_window_has_a_batch_of_start_steps():
  sizes = {"workers": {"num_envs": 16}, "learner": {"batch_size": 256}}
  # The 15 steps after a start step, and 256 / 16 start steps, for each of 16 environments
  Config.model_validate(sizes | {"replay": {"window_share": 0.1, "window_min": 496}})
  with pytest.raises(pydantic.ValidationError, match=r"window_min=495: .* be at least 496 with 16"):
    Config.model_validate(sizes | {"replay": {"window_share": 0.1, "window_min": 495}})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rejects_non_finite_numbers(value):
  with pytest.raises(pydantic.ValidationError, match="finite"):
    Config(max_wall_s=value)


def test_random_starts_need_steps():
  with pytest.raises(
    pydantic.ValidationError, match=r"max_random_starts=3.*must be 0 with workers\.rollout=scan"
  ):
    Config.model_validate({"workers": {"max_random_starts": 3, "rollout": "scan"}})


def test_every_key_has_a_description():
  def missing(section: type[pydantic.BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in section.model_fields.items():
      if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
        found += missing(field.annotation, f"{prefix}{name}.")
      elif not field.description:
        found.append(prefix + name)
    return found

  assert missing(Config) + missing(TemperaturePoint) + missing(DiscountPoint) == []


POINTS = [{"env_steps": 5, "discount": 0.9}, {"env_steps": 9, "discount": 0.99}]


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"algorithm": "alphazero"}, "targets.unroll_steps=5: must be 0 with algorithm=alphazero"),
    ({"targets": {"unroll_steps": 0}}, "targets.unroll_steps=0: must be at least 1 with algorithm=muzero"),
    ({"targets": {"discount_schedule": POINTS[::-1]}}, r"discount_schedule: env_steps \[9, 5\]: must rise"),
    (
      {"algorithm": "ppo", "targets": {"discount_schedule": POINTS}},
      "targets.discount_schedule needs algorithm=muzero or alphazero or q_learning, not ppo",
    ),
    (
      {"algorithm": "alphazero", "targets": {"unroll_steps": 0}, "reanalyze": {"ratio": 0.5}},
      "reanalyze.ratio=0.5 needs algorithm=muzero, not alphazero",
    ),
    (
      {"algorithm": "alphazero", "targets": {"unroll_steps": 0}, "chance": {"codes": 2}},
      "chance.codes=2 needs algorithm=muzero, not alphazero",
    ),
    (
      {"algorithm": "alphazero", "targets": {"unroll_steps": 0, "search_value_age": 9}},
      "targets.search_value_age=9 needs algorithm=muzero, not alphazero",
    ),
    ({"targets": {"search_value_age": 9}}, "targets.search_value_age=9: needs reanalyze.ratio above 0"),
    (
      {"targets": {"search_value_age": 9}, "reanalyze": {"ratio": 0.5, "search": False}},
      "targets.search_value_age=9: needs reanalyze.search=true",
    ),
    (
      {"targets": {"search_value_age": 9}, "reanalyze": {"ratio": 0.5}, "chance": {"codes": 2}},
      "targets.search_value_age=9: must be null with chance.codes=2",
    ),
    (
      {"algorithm": "ppo", "acting": {"mode": "server"}},
      "acting.mode=server needs algorithm=muzero or alphazero, not ppo",
    ),
    (
      {"algorithm": "q_learning", "acting": {"mode": "server"}},
      "acting.mode=server needs algorithm=muzero or alphazero, not q_learning",
    ),
    (
      {"acting": {"mode": "server"}, "workers": {"rollout": "scan"}},
      "workers.rollout=scan: must be auto or step with acting.mode=server",
    ),
    (
      {"acting": {"mode": "server"}, "opponents": {"past_share": 0.2}},
      "opponents.past_share=0.2: must be 0 with acting.mode=server",
    ),
    (
      {"acting": {"mode": "server", "num_servers": 3}, "workers": {"num_workers": 2}},
      "acting.num_servers=3: must be at most workers.num_workers=2",
    ),
    (
      {"acting": {"mode": "server"}, "offline": {"trajectories": "x", "fraction": 1}},
      "acting.mode=server: no worker acts with offline.fraction=1",
    ),
    (
      {"algorithm": "ppo", "evaluation": {"network": "target"}},
      "evaluation.network=target: algorithm=ppo has no target network; must be online",
    ),
    (
      {"algorithm": "ppo", "learner": {"num_devices": 2}},
      "learner.num_devices=2 needs algorithm=muzero or alphazero or q_learning, not ppo",
    ),
    (
      {"algorithm": "ppo", "learner": {"compute_dtype": "bfloat16"}},
      "learner.compute_dtype=bfloat16 needs algorithm=muzero or alphazero or q_learning, not ppo",
    ),
    (
      {"algorithm": "q_learning", "q_learning": {"kind": "table"}, "learner": {"accumulate": 2}},
      "learner.accumulate=2 needs q_learning.kind=network",
    ),
    (
      {"learner": {"accumulate": 2}, "network": {"norm": "batch"}},
      "learner.accumulate=2: must be 1 with network.norm=batch",
    ),
    (
      {"learner": {"accumulate": 2}, "network": {"normalize_observations": True}},
      "learner.accumulate=2: must be 1 with network.normalize_observations=true",
    ),
    (
      {"learner": {"num_devices": 2}, "ray": {"learner": {"num_gpus": 1}}},
      "learner.num_devices=2: needs ray.learner.num_gpus=2, not 1",
    ),
    (
      {"runtime": "ray", "learner": {"num_hosts": 2}, "ray": {"learner": {"num_gpus": 0.5}}},
      "learner.num_devices=1: needs ray.learner.num_gpus=1, not 0.5",
    ),
    (
      {"learner": {"batch_size": 256, "num_devices": 4, "accumulate": 3}},
      "batch_size=256: must be a multiple of num_devices · accumulate = 4 · 3 = 12",
    ),
    (
      {"learner": {"batch_size": 256, "num_hosts": 3, "num_devices": 2}},
      "batch_size=256: must be a multiple of num_hosts · num_devices · accumulate = 3 · 2 · 1 = 6",
    ),
    *(
      (
        {"algorithm": algorithm, "learner": {"num_hosts": 2}},
        f"learner.num_hosts=2 needs algorithm=muzero or alphazero, not {algorithm}",
      )
      for algorithm in ("ppo", "q_learning", "my_module:algorithm")
    ),
    ({"runtime": "local", "learner": {"num_hosts": 2}}, "learner.num_hosts=2 needs runtime=ray, not local"),
  ],
)
def test_rejects_settings_of_another_algorithm(changes, message):
  with pytest.raises(pydantic.ValidationError, match=message):
    Config.model_validate(changes)


def test_servers_share_the_workers_of_a_run_with_ray():
  settings = {"acting": {"mode": "server", "num_servers": 2}, "workers": {"num_workers": 5}}
  config = Config.model_validate(settings)
  assert (config.num_inference_servers, config.max_inference_batch) == (2, 3)
  assert Config.model_validate(settings | {"runtime": "local"}).num_inference_servers == 0
  assert Config().num_inference_servers == 0
  settings["acting"]["max_batch"] = 2
  assert Config.model_validate(settings).max_inference_batch == 2
