"""Tests of loading configurations."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io import bounded_read
from moozi.io.config import config_from_dict, config_to_dict, load_config, save_config
from moozi.io.plain_data import dump_yaml, parse_yaml

ROOT = Path(__file__).resolve().parents[2]
ALL_CONFIGS = sorted((ROOT / "config").rglob("*.yaml"))


def error_of(*overrides: str, path: Path | None = None) -> str:
  with pytest.raises(UserError) as caught:
    load_config(path, overrides)
  message = str(caught.value)
  assert "\n" not in message
  return message


def write(path: Path, text: str) -> Path:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  return path


def test_no_arguments_give_the_defaults():
  assert load_config(None) == Config()


@pytest.mark.parametrize("path", ALL_CONFIGS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_config_file_loads(path):
  config = load_config(path)
  assert config_from_dict(config_to_dict(config)) == config


def test_resolved_configs_of_committed_results_load():
  paths = sorted((ROOT / "experiments").glob("*/results/**/config.yaml"))
  assert len(paths) > 20
  for path in paths:
    load_config(path)


def test_gumbel_never_has_the_visit_mean():
  """Sequential halving visits bad actions as often as good ones, so a mean over visits is misleading."""
  planners = load_config(None, ["planners.test.algorithm=puct"]).planners
  assert planners.train.has_improved_root_value
  assert not planners.test.has_improved_root_value
  with pytest.raises(UserError, match=r"planners\.train\.root_value=mean: must be improved"):
    load_config(None, ["planners.train.root_value=mean"])
  with pytest.raises(UserError, match=r"planners\.reanalyze\.root_value=mean: must be improved"):
    load_config(None, ["planners.reanalyze.root_value=mean"])
  load_config(None, ["planners.train.root_value=mean", "algorithm=ppo"])  # as in older runs


def test_reanalyze_searches_as_training_does_unless_set():
  config = load_config(None, ["planners.train.num_simulations=7", "planners.train.gumbel_scale=2"])
  assert config.planners.for_reanalyze == config.planners.train
  config = load_config(None, ["planners.train.num_simulations=7", "planners.reanalyze.gumbel_scale=0"])
  assert config.planners.for_reanalyze == config.planners.train.model_copy(update={"gumbel_scale": 0.0})


def test_a_temperature_drop_is_that_of_acting():
  dropping = ["planners.train.algorithm=puct", "planners.train.temperature_drop=3"]
  config = load_config(None, [*dropping, "planners.reanalyze.num_simulations=7"])
  assert (config.planners.train.temperature_drop, config.planners.reanalyze.temperature_drop) == (3, None)
  assert config.planners.reanalyze.algorithm == "puct"
  with pytest.raises(UserError, match=r"planners\.reanalyze.*temperature_drop=4: must be null in"):
    load_config(None, [*dropping, "planners.reanalyze.temperature_drop=4"])
  for algorithm in ("q_learning", "ppo"):
    with pytest.raises(UserError, match=r"temperature_drop=3 needs algorithm=muzero or alphazero, not"):
      load_config(None, [*dropping, f"algorithm={algorithm}"])
  assert config_from_dict(config_to_dict(config)) == config


def test_thesis_settings():
  c = load_config(ROOT / "config/thesis/breakout.yaml")
  t, n, r = c.targets, c.network, c.learner
  assert (t.history_length, t.unroll_steps, t.n_step, t.discount) == (4, 5, 10, 0.997)
  assert (c.scalar_transform.support_min, c.scalar_transform.support_max) == (-30, 30)
  assert (n.kind, n.norm, n.channels, n.head_size) == ("resnet", "batch", 32, 128)
  assert (n.num_representation_blocks, n.num_prediction_blocks, n.num_dynamics_blocks) == (6, 1, 1)
  assert (r.batch_size, r.samples_per_step, r.optimizer, r.learning_rate.peak) == (1024, 4, "adam", 1e-2)
  assert (r.value_coef, r.consistency_coef, r.l2_coef, r.max_grad_norm) == (0.25, 2, 1e-4, 5)
  assert (r.target_update_period, r.scale_reward_loss, r.reward_coef) == (500, False, 1)
  table = {"train": (2.25, 25, 0.2), "test": (1.75, 40, 0.1), "reanalyze": (1.75, 50, 0.2)}
  for worker, (pb_c_init, num_simulations, dirichlet_fraction) in table.items():
    planner = getattr(c.planners, worker)
    assert (planner.algorithm, planner.pb_c_base) == ("puct", 19652)
    assert (planner.pb_c_init, planner.num_simulations) == (pb_c_init, num_simulations)
    assert planner.dirichlet_fraction == dirichlet_fraction
  assert (c.planners.train.temperature, c.planners.test.temperature) == (1.0, 0.25)
  assert (c.workers.num_workers, c.workers.num_envs, c.workers.segment_length) == (30, 16, 100)
  assert (c.evaluation.noise_free, c.evaluation.num_envs, c.evaluation.episodes) == (False, 1, 10)


def test_save_and_load_are_inverse(tmp_path):
  config = load_config(
    None,
    [
      "run.name=1e5",
      "learner.learning_rate.peak=3e-4",
      "planners.train.algorithm=puct",
      "planners.train.temperature=[{env_steps: 0, temperature: 1}, {env_steps: 10, temperature: .5}]",
      "env.kwargs={a: null, b: [1, 2.5, x], c: {d: 'no'}}",
    ],
  )
  save_config(config, tmp_path / "config.yaml")
  assert load_config(tmp_path / "config.yaml") == config
  assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


# --- values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("text", "value"),
  [
    ("1e-3", 0.001),
    ("1E-3", 0.001),
    ("1.e-3", 0.001),
    (".5", 0.5),
    ("-2.5", -2.5),
    ("1e6", 1_000_000),
    ("1_000", 1000),
    ("-7", -7),
    ("1.0", 1.0),
    ("007", 7.0),
    ("1:30", "1:30"),
    ("no", "no"),
    ("on", "on"),
    ("2026-11-21", "2026-11-21"),
    ("0x10", "0x10"),
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("'1e-3'", "1e-3"),
    ("=", "="),
  ],
)
def test_yaml_values(text, value):
  read = parse_yaml(text, "here")
  assert read == value
  assert type(read) is type(value)


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0e-3"])
def test_small_numbers_in_files_and_overrides(tmp_path, text):
  path = write(tmp_path / "a.yaml", f"learner:\n  learning_rate:\n    peak: {text}\n")
  assert load_config(path).learner.learning_rate.peak == 0.001
  assert load_config(None, [f"learner.learning_rate.peak={text}"]).learner.learning_rate.peak == 0.001


plain = st.recursive(
  st.none()
  | st.booleans()
  | st.integers()
  | st.floats(allow_nan=False, allow_infinity=False)
  | st.text(max_size=8),
  lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
  max_leaves=8,
)


@given(plain)
@pytest.mark.slow
def test_dump_and_parse_are_inverse(data):
  assert parse_yaml(dump_yaml(data), "here") == data


@pytest.mark.parametrize(
  "text", ["1e-3", "1e5", "1.5", "12", "no", "true", "null", "~", "1:30", "0x1f", "2026-11-21"]
)
def test_text_that_looks_like_a_number_stays_text(text):
  assert parse_yaml(dump_yaml({"a": text}), "here") == {"a": text}


def test_text_overrides_are_not_converted():
  assert load_config(None, ["run.name=007"]).run.name == "007"
  assert load_config(None, ["run.dir=/home/exp #2/runs"]).run.dir == "/home/exp #2/runs"
  assert load_config(None, ['run.dir="/home/exp\\x41"']).run.dir == "/home/expA"
  assert load_config(None, ["run.name=null"]).run.name is None
  assert load_config(None, ["run.name='null'"]).run.name == "null"
  assert load_config(None, ["env.name=tiny:catch"]).env.name == "tiny:catch"
  assert load_config(None, ["ray.address=127.0.0.1:6379"]).ray.address == "127.0.0.1:6379"
  assert load_config(None, ["network.norm=none"]).network.norm == "none"


def test_last_override_wins(tmp_path):
  path = write(tmp_path / "a.yaml", "seed: 1\nmax_env_steps: 5\n")
  config = load_config(path, ["seed=2", "seed=3"])
  assert (config.seed, config.max_env_steps) == (3, 5)


def test_empty_section_is_the_default(tmp_path):
  path = write(tmp_path / "a.yaml", "learner:\nenv:\n  kwargs:\n")
  assert load_config(path) == Config()


def test_override_replaces_a_list():
  schedule = "planners.train.temperature=[{env_steps: 0, temperature: 1}, {env_steps: 10, temperature: 0}]"
  assert load_config(None, [schedule, "planners.train.temperature=0.5"]).planners.train.temperature == 0.5


# --- base ---------------------------------------------------------------------------------------------


def test_bases_merge_key_by_key(tmp_path):
  write(tmp_path / "base.yaml", "seed: 1\nmax_env_steps: 5\nlearner: {batch_size: 8, max_grad_norm: 1}\n")
  write(tmp_path / "sub/mid.yaml", "base: ../base.yaml\nmax_env_steps: 6\nlearner: {batch_size: 9}\n")
  path = write(tmp_path / "sub/top.yaml", "base: mid.yaml\nlearner: {value_coef: 0.5}\n")
  c = load_config(path)
  assert (c.seed, c.max_env_steps) == (1, 6)
  assert (c.learner.max_grad_norm, c.learner.batch_size, c.learner.value_coef) == (1.0, 9, 0.5)


def test_cycle_of_bases_is_refused(tmp_path):
  write(tmp_path / "a.yaml", "base: b.yaml\n")
  write(tmp_path / "b.yaml", "base: ./sub/../a.yaml\n")
  (tmp_path / "sub").mkdir()
  assert "a.yaml -> b.yaml -> a.yaml" in error_of(path=tmp_path / "a.yaml")
  write(tmp_path / "c.yaml", "base: c.yaml\n")
  assert "c.yaml -> c.yaml" in error_of(path=tmp_path / "c.yaml")


def test_missing_base_is_named(tmp_path):
  path = write(tmp_path / "a.yaml", "base: nowhere.yaml\n")
  message = error_of(path=path)
  assert "a.yaml: base:" in message
  assert "nowhere.yaml: no such file or configuration" in message
  write(path, "base: minatar/brekout\n")
  assert "base: minatar/brekout: no such file or configuration; did you mean minatar/" in error_of(path=path)


@pytest.mark.parametrize("base", ["3", "[a.yaml]", "''"])
def test_base_must_be_a_path(tmp_path, base):
  assert "base=" in error_of(path=write(tmp_path / "a.yaml", f"base: {base}\n"))


# --- files --------------------------------------------------------------------------------------------


def test_unreadable_files_are_refused(tmp_path):
  assert "no such file" in error_of(path=tmp_path / "missing.yaml")
  assert "not a file" in error_of(path=tmp_path)
  assert "empty" in error_of(path=write(tmp_path / "empty.yaml", ""))
  assert "empty" in error_of(path=write(tmp_path / "comment.yaml", "# nothing\n"))
  assert "mapping" in error_of(path=write(tmp_path / "list.yaml", "- 1\n"))
  assert "mapping" in error_of(path=write(tmp_path / "text.yaml", "hello\n"))
  (tmp_path / "binary.yaml").write_bytes(b"\x80\x04\x95\x00")
  assert "UTF-8" in error_of(path=tmp_path / "binary.yaml")
  (tmp_path / "nul.yaml").write_bytes(b"seed: \x00")
  assert "not valid YAML" in error_of(path=tmp_path / "nul.yaml")
  (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
  assert "loop.yaml" in error_of(path=tmp_path / "loop.yaml")
  assert "cannot be read" in error_of(path=Path("a\0b"))
  assert "larger" in error_of(path=write(tmp_path / "large.yaml", "seed: 0 #" + "x" * (1 << 20)))


def test_missing_permission_is_reported(tmp_path, monkeypatch):
  path = write(tmp_path / "a.yaml", "seed: 0\n")

  def refuse(*_):
    raise PermissionError(13, "Permission denied")

  monkeypatch.setattr(bounded_read, "open_bounded", refuse)  # chmod has no effect for root
  assert "Permission denied" in error_of(path=path)


@pytest.mark.parametrize(
  "text", ["a: [1", "a: b: c", "\t- x", "a: 1\n b: 2", "a: 1\n---\nb: 2", "%YAML 9.9", '"']
)
def test_invalid_yaml_is_refused(tmp_path, text):
  assert "not valid YAML" in error_of(path=write(tmp_path / "a.yaml", text))


@pytest.mark.parametrize(
  "text", ["!!bool maybe", "!!int ''", "!!int '-'", "!!float x", "!!map [a]", "!!seq a", "? !!str [a]\n: 1"]
)
def test_values_that_do_not_fit_their_tag_are_refused(tmp_path, text):
  assert "not valid YAML" in error_of(path=write(tmp_path / "a.yaml", text))


@pytest.mark.parametrize("depth", [3000])
def test_deep_nesting_is_refused(tmp_path, depth):
  assert "too deep" in error_of(path=write(tmp_path / "a.yaml", "a: " + "[" * depth + "]" * depth))


def test_duplicate_key_is_refused(tmp_path):
  assert "'seed' is given twice" in error_of(path=write(tmp_path / "a.yaml", "seed: 1\nseed: 2\n"))


def test_keys_must_be_text(tmp_path):
  assert "not text" in error_of(path=write(tmp_path / "a.yaml", "1: 2\n"))


def test_aliases_are_refused(tmp_path):
  bomb = "a: &a [x, x]\n" + "".join(
    f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
  )
  assert "aliases" in error_of(path=write(tmp_path / "a.yaml", bomb))


@pytest.mark.parametrize(
  "value",
  [
    "!!python/object/apply:os.system ['touch {marker}']",
    "!!python/object/new:os.system ['touch {marker}']",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/tuple [1, 2]",
    "!!python/object/apply:pathlib.Path [x]",
    "!!binary aGk=",
    "!!timestamp 2026-11-21",
    "!own x",
  ],
)
def test_tags_are_refused(tmp_path, value):
  marker = tmp_path / "marker"
  value = value.replace("{marker}", str(marker))
  path = write(tmp_path / "a.yaml", f"env:\n  kwargs:\n    a: {value}\n")
  assert "is not allowed" in error_of(path=path)
  assert "is not allowed" in error_of(f"env.kwargs.a={value}")
  write(tmp_path / "b.yaml", f"seed: {value}\n")
  assert "is not allowed" in error_of(path=write(tmp_path / "c.yaml", "base: b.yaml\n"))
  assert not marker.exists()


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("override", "nearest"),
  [
    ("learner.bach_size=3", "learner.batch_size"),
    ("batch_size=3", "learner.batch_size"),
    ("sead=3", "seed"),
    ("learner.learning_rate.peek=3", "learner.learning_rate.peak"),
    ("planners.train.num_simulation=3", "planners.train.num_simulations"),
    ("num_workers=3", "workers.num_workers"),
    ("base=x.yaml", None),
    ("zzzz=3", None),
    ("learner.zzzz=3", None),
  ],
)
def test_unknown_key_suggests_the_closest(override, nearest):
  message = error_of(override)
  assert message.startswith(override.partition("=")[0] + ": unknown key")
  assert (
    (f"did you mean {nearest}?" in message)
    if nearest
    else ("must be one of" in message or "did you mean" in message)
  )


def test_unknown_key_inside_a_list():
  message = error_of("planners.train.temperature=[{env_steps: 0, temperature: 1, temp: 2}]")
  assert "planners.train.temperature[0].temp: unknown key" in message


@pytest.mark.parametrize(
  ("override", "error_text"),
  [
    ("seed=x", 'seed="x": must be a valid integer'),
    ("seed=1.5", "seed=1.5: must be a valid integer"),
    ("seed=true", "seed=true: must be a valid integer"),
    ("seed='3'", 'seed="3": must be a valid integer'),
    ("seed=-1", "seed=-1: must be greater than or equal to 0"),
    ("seed=", "seed=null: must be a valid integer"),
    ("seed.x=1", 'seed={"x": 1}: must be a valid integer'),
    ("max_wall_s=x", 'max_wall_s="x": must be a valid number or null'),
    ("max_wall_s=0", "max_wall_s=0: must be greater than 0 or null"),
    ("learner.value_coef=x", 'learner.value_coef="x": must be a valid number'),
    ("learner.scale_reward_loss=1", "learner.scale_reward_loss=1: must be a valid boolean"),
    ("learner=3", "learner=3: must be a mapping"),
    ("learner=[1]", "learner=[1]: must be a mapping"),
    ("env.kwargs=3", "env.kwargs=3: must be a mapping"),
    ("env.name=", "env.name=null: must be a valid string"),
    ("targets.discount=1.01", "targets.discount=1.01: must be less than or equal to 1"),
    ("targets.discount=0", "targets.discount=0: must be greater than 0"),
    ("network.batch_norm_decay=1", "network.batch_norm_decay=1: must be less than 1"),
    (
      "network.kind=transformer",
      'network.kind="transformer": must be resnet, mlp, conv_latent, multi_input, module:function or a regis',
    ),
    ("runtime=no", "runtime=\"no\": must be 'ray' or 'local'"),
    ("ray.num_cpus=x", 'ray.num_cpus="x": must be a valid integer or null'),
    (
      "planners.train.temperature=-1",
      "planners.train.temperature=-1: must be greater than or equal to 0 or a valid array",
    ),
    (
      "planners.train.temperature=[{env_steps: -1, temperature: 1}]",
      "planners.train.temperature[0].env_steps=-1: must be greater than or equal to 0",
    ),
    (
      "planners.test.dirichlet_fraction=0.5",
      "planners.test: dirichlet_fraction=0.5: must be 0 with algorithm=gumbel",
    ),
    ("learner.learning_rate.kind=cosine", "learner.learning_rate: decay_steps: needed with kind=cosine"),
    ("replay.capacity=100", "replay.capacity=100: has 1 steps"),
  ],
)
def test_wrong_value_message(override, error_text):
  assert error_of(override).startswith(error_text)


def test_evaluations_have_no_schedule_of_temperatures():
  own = ("planners.test.algorithm=puct", "planners.test.temperature=[{env_steps: 0, temperature: 1}]")
  assert error_of(*own).startswith("planners.test: temperature: must be a number in planners.test")


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_values_must_be_finite(value):
  assert "learner.value_coef" in error_of(f"learner.value_coef={value}")


def test_message_names_file_and_counts_wrong_keys(tmp_path):
  path = write(tmp_path / "a.yaml", "seed: x\nlearner: {batch_size: 0, value_coef: y}\n")
  message = error_of(path=path)
  assert message.startswith(f"{path}: seed=")
  assert message.endswith("(and 2 more wrong keys: learner.batch_size, learner.value_coef)")
  assert error_of("seed=x", "zzzz=1").endswith("(and 1 more wrong key: zzzz)")


def test_message_names_five_more_wrong_keys():
  message = error_of("seed=x", *(f"zz{i}{'y' * 500}=1" for i in range(9)))
  assert "(and 9 more wrong keys: zz0yyy" in message
  assert message.endswith(f"zz4{'y' * 57}, …)")


@pytest.mark.parametrize(
  ("override", "hint"),
  [
    ("learner.learning_rate=1e-3", "such as learner.learning_rate.peak=0.001"),
    ("network=mlp", 'such as network.kind="mlp"'),
    ("planners.train=gumbel", 'such as planners.train.algorithm="gumbel"'),
    ("env=minatar:breakout", 'such as env.name="minatar:breakout"'),
    ("workers.resources=2", "such as workers.resources.num_cpus=2"),
    ("learner.learning_rate=fast", "must be a mapping of keys: kind, peak, end, warmup_steps, decay_steps"),
  ],
)
def test_value_in_place_of_a_section_names_a_key_that_takes_it(override, hint):
  message = error_of(override)
  assert message.startswith(override.partition("=")[0])
  assert message.endswith(hint)
  if hint.startswith("such as"):
    load_config(None, [hint.removeprefix("such as ")])


@pytest.mark.parametrize(
  ("override", "hint"),
  [
    ("network.kind=my.module.make", "did you mean my.module:make?"),
    ("callbacks=[my.module.make]", "did you mean my.module:make?"),
    ("planners.train.algorithm=./src/search.py:mine", "did you mean src.search:mine?"),
    ("network.kind=mine", "mine is not registered: moozi.register_network registers it"),
    ("callbacks=log", "log is not registered: moozi.register_callback registers it"),
  ],
)
def test_name_of_a_function_that_is_not_found_says_how_to_name_it(override, hint):
  assert hint in error_of(override)


@pytest.mark.parametrize("value", ["100000.0", "1e5", "1.0e+5", "1_00_000."])
def test_whole_numbers_are_integers(tmp_path, value):
  path = write(tmp_path / "a.yaml", f"max_env_steps: {value}\n")
  for config in (load_config(path), load_config(None, [f"max_env_steps={value}"])):
    assert config.max_env_steps == 100_000
    assert type(config.max_env_steps) is int
  assert type(load_config(None, [{"learner": {"batch_size": 64.0}}]).learner.batch_size) is int


@pytest.mark.parametrize(
  "value", ["100000.5", "1e30", "1e999", "-.inf", "1e-3", "'1e5'", "9007199254740994."]
)
def test_other_numbers_are_no_integers(value):
  assert "must be a valid integer" in error_of(f"max_env_steps={value}")


@pytest.mark.parametrize(
  ("overrides", "start"),
  [
    (["learner.bach_size=3"], "learner.bach_size: unknown key"),
    (["learner.batch_size=9", "seed=x"], 'seed="x": must be'),
    (["planners.train.dirichlet_fraction=0.5"], "planners.train.dirichlet_fraction=0.5: planners.train: "),
    (["learner.value_coef=1", "seed=x", "max_wall_s=y"], 'seed="x"'),
    (
      ["ray.replay_shards=3", "workers.num_workers=2"],
      "ray.replay_shards=3: must be at most workers.num_workers=2",
    ),
  ],
)
def test_message_blames_the_override(tmp_path, overrides, start):
  path = write(tmp_path / "a.yaml", "seed: 1\n")
  assert error_of(*overrides, path=path).startswith(start)


def test_message_blames_the_file_despite_overrides(tmp_path):
  path = write(tmp_path / "a.yaml", "seed: x\nlearner: {batch_size: 8}\n")
  assert error_of("learner.batch_size=9", path=path).startswith(f"{path}: seed=")
  assert load_config(path, ["seed=3"]).seed == 3
  assert error_of("seed=3", "learner.batch_size=y", path=path).startswith("learner.batch_size=")


@pytest.mark.parametrize("override", ["seed", "=3", ".=3", "a..b=3", "", "--seed 3"])
def test_malformed_override_is_refused(override):
  assert "key=value" in error_of(override)


@pytest.mark.parametrize(
  "override", ["seed=${nowhere}", "seed=${x", "run.name=${oc.env:MOOZI_NO_SUCH_THING}"]
)
def test_interpolations_are_refused(override):
  error_of(override)


@pytest.mark.parametrize(
  ("layers", "error"),
  [
    (["planners.train.temperature.1.temperature=0.5"], "planners.train.temperature"),
    (["callbacks=[a]", "callbacks={x: 1}"], "callbacks"),
  ],
)
def test_list_and_mapping_are_not_merged(layers, error):
  assert error in error_of(*layers)


def test_later_layers_replace_the_values_of_earlier_ones():
  config = load_config(None, ["env.kwargs={a: 1, b: {c: 2}}", "env.kwargs.b.d=3", "env.kwargs.a='???'"])
  assert config.env.kwargs == {"a": "???", "b": {"c": 2, "d": 3}}
  assert load_config(None, ["env.kwargs={a: 1}", "env.kwargs=", "env.kwargs.b=2"]).env.kwargs == {"b": 2}


def test_partial_section_keeps_its_defaults():
  """These sections have other defaults than their classes, which a partial section must not restore."""
  default, config = (
    Config(),
    load_config(None, ["planners.test.num_simulations=3", "workers.resources.num_threads=2"]),
  )
  assert config.planners.test == default.planners.test.model_copy(update={"num_simulations": 3})
  assert config.workers.resources == default.workers.resources.model_copy(update={"num_threads": 2})
  assert config.planners.train == default.planners.train


def _num_calls(function: Callable[[], object]) -> int:
  """Returns the number of Python and C calls that a function makes, which does not depend on the machine."""
  count = 0

  def add(frame, event, arg):
    nonlocal count
    count += event in ("call", "c_call")

  sys.setprofile(add)
  try:
    function()
  finally:
    sys.setprofile(None)
  return count


@pytest.mark.parametrize(
  "data",
  [
    lambda n: {"learner": {f"batch_sise{i}": 1 for i in range(n)}},
    lambda n: {f"k{i}": 1 for i in range(n)},
    lambda n: {"planners": {"train": {"temperature": [{"env_steps": 0, "temperature": -1}] * n}}},
    lambda n: {"callbacks": ["x"] * n},
  ],
)
def test_the_cost_of_wrong_keys_is_in_proportion_to_their_number(data):
  def refuse(n: int) -> None:
    with pytest.raises(UserError):
      config_from_dict(data(n))

  refuse(1)  # fills caches
  assert _num_calls(lambda: refuse(800)) < 2.5 * _num_calls(lambda: refuse(400))


def test_only_the_last_overrides_are_tried_for_a_mistake():
  overrides = [f"seed={i}" for i in range(400)]

  def refuse(n: int) -> None:
    with pytest.raises(UserError, match="sede: unknown key"):
      load_config("tiny/catch", ["sede=1", *overrides[:n]])

  refuse(1)
  assert _num_calls(lambda: refuse(200)) < 2.5 * _num_calls(lambda: refuse(100))


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (["a." * 5000 + "a=1"], "nested deeper than 50 levels"),
    ([{"env": {"kwargs": {f"k{i}": i for i in range(20_000)}}}], "more than 10,000 keys and values"),
    (
      ["env.kwargs={" + ",".join(f"k{i}: 1" for i in range(20_000)) + "}"],
      "more than 10,000 keys and values",
    ),
    ([f"env.kwargs.k{i}=1" for i in range(1_001)], "1,001 overrides; at most 1,000 are allowed; use a file"),
    (["callbacks=[" + "m:f," * 65 + "]"], "callbacks: must have at most 64 items"),
  ],
)
def test_a_configuration_too_large_to_be_one_is_refused(overrides, message):
  with pytest.raises(UserError, match=message):
    load_config(None, overrides)


def test_a_configuration_that_contains_itself_is_refused():
  kwargs: dict = {}
  kwargs["env"] = kwargs
  items: list = []
  items.append(items)
  for data in (kwargs, {"callbacks": items}):
    with pytest.raises(UserError, match="nested deeper"):
      load_config(None, [data])
