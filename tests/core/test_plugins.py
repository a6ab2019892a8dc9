"""Tests of plug-ins: finding them by name, listing those that are code, passing them to processes."""

import pickle

import pytest

from moozi.core import plugins, user_code
from moozi.core.config import uses
from moozi.core.errors import EnvError, UserError
from moozi.core.plugins import Registry
from moozi.io.config import config_from_dict, config_to_dict, load_config

pytestmark = pytest.mark.usefixtures("folder")


def make(*args):
  return args


def test_registered_name_is_found_and_can_be_replaced():
  registry = Registry("network", "network.kind", ("mlp",))
  assert registry.register("wide")(max) is max
  registry.register("wide")(make)
  assert registry.get("wide")(1, 2) == (1, 2)
  assert registry.names() == ["mlp", "wide"]


@pytest.mark.parametrize(
  ("name", "message"),
  [("mlp", "is built in"), ("a:b", "must be a name"), ("", "must be a name"), ("../x", "must be a name")],
)
def test_names_that_cannot_be_registered(name, message):
  with pytest.raises(UserError, match=message):
    Registry("network", "network.kind", ("mlp",)).register(name)(make)


def test_what_is_registered_must_be_callable():
  with pytest.raises(UserError, match="is a int; must be a function"):
    Registry("network", "network.kind").register("wide")(3)


def test_module_of_the_current_folder(folder):
  (folder / "moozi_own_nets.py").write_text("def make():\n  return 7\n")
  assert plugins.NETWORKS.get("moozi_own_nets:make")() == 7


@pytest.mark.parametrize(
  ("value", "message"),
  [
    (
      "moozi_own_bad:make",
      r"x.y=moozi_own_bad:make: the module moozi_own_bad cannot be imported: .*bad.py:1: Zero",
    ),
    ("moozi_own_good:mak", "the module moozi_own_good has no mak; the nearest is make"),
    ("moozi_own_good:number", "number is a int; must be a function"),
    ("moozi_none_such:make", "there is no module moozi_none_such"),
    ("mpl", "x.y=mpl: must be mlp, module:function or a registered name; the nearest is mlp"),
  ],
)
def test_errors_of_loading(folder, value, message):
  (folder / "moozi_own_bad.py").write_text("1 / 0\n")
  (folder / "moozi_own_good.py").write_text("number = 3\ndef make(): pass\n")
  with pytest.raises(UserError, match=message):
    Registry("network", "network.kind", ("mlp",)).get(value, "x.y")


@pytest.mark.parametrize(
  ("value", "hint"),
  [
    ("package.module.make", "; did you mean package.module:make?"),
    ("module.py:make", "; did you mean module:make?"),
    ("../folder/module.py:make", "; did you mean folder.module:make?"),
    ("minatar.breakout", "; did you mean minatar:breakout?"),
    ("module:make", ""),
    ("mcts:many", ""),
    ("make", ""),
    (".", ""),
    ("a b.c", ""),
    ("/:/", ""),
    ("..py:x", ""),
    ("\x1b[2J.make", ""),
  ],
)
def test_paths_of_functions_that_are_written_otherwise(value, hint):
  assert user_code.describe_path(value) == hint


def test_file_in_place_of_a_module(folder):
  (folder / "moozi_own_good.py").write_text("def make(): pass\n")
  with pytest.raises(UserError, match=r"no module moozi_own_good\.py; did you mean moozi_own_good:make\?"):
    plugins.NETWORKS.get("moozi_own_good.py:make")


def test_error_of_a_call_has_the_users_file_and_line(folder):
  (folder / "moozi_own_raises.py").write_text("def make():\n  help()\ndef help():\n  exit('no')\n")
  plugin = plugins.LOSSES.get("moozi_own_raises:make")
  with pytest.raises(
    UserError, match=r"learner.extra_losses=moozi_own_raises:make: .*raises.py:4: SystemExit: no"
  ):
    plugin()
  with pytest.raises(EnvError, match="it failed"), plugin.errors("it failed", EnvError):
    plugin.function()


def test_error_of_a_registered_function_has_its_file_and_line():
  plugins.register_loss("bad")(lambda: 1 / 0)
  with pytest.raises(
    UserError, match=rf"extra_losses=bad: the call failed: {__file__}:\d+: ZeroDivisionError"
  ):
    plugins.LOSSES.get("bad")()


def test_entry_point(folder, monkeypatch):
  package = folder / "moozi_own-1.0.dist-info"
  package.mkdir()
  (package / "METADATA").write_text("Name: moozi_own\nVersion: 1.0\n")
  (package / "entry_points.txt").write_text(
    "[moozi.networks]\nown = moozi_own_entry:make\nbroken = moozi_own_entry:none\n"
  )
  (folder / "moozi_own_entry.py").write_text("def make():\n  return 7\n")
  monkeypatch.syspath_prepend(folder)
  assert plugins.NETWORKS.get("own")() == 7
  with pytest.raises(
    UserError, match=r"network.kind=broken: the entry point moozi_own_entry:none cannot be loaded"
  ):
    plugins.NETWORKS.get("broken")
  config = load_config(None, ["network.kind=own"])
  assert uses.code_keys(config) == []  # the user installed the package, so the run brings no code


def test_groups_of_entry_points():
  groups = "environments wrappers algorithms networks searches losses players callbacks"
  assert [registry.group for registry in plugins.REGISTRIES] == [f"moozi.{name}" for name in groups.split()]


CODE = [
  "env.name=my.envs:make",
  "env.wrappers[0]=my_wrappers:flatten",
  "network.kind=my_nets:make",
  "planners.test.algorithm=my_search:search",
  "learner.extra_losses[0]=my_loss:a",
  "learner.extra_losses[1]=my_loss:b",
  "evaluation.opponent=my_player:make",
  "callbacks[0]=my_callbacks:make",
]
OVERRIDES = [
  "env.name=my.envs:make",
  "env.wrappers=my_wrappers:flatten",  # read as a list with one entry
  "network.kind=my_nets:make",
  "planners.test.algorithm=my_search:search",
  "learner.extra_losses=[my_loss:a, my_loss:b]",
  "evaluation.opponent=my_player:make",
  "callbacks=[my_callbacks:make]",
]


def test_every_key_that_names_code_is_listed():
  config = load_config(None, OVERRIDES)
  assert uses.code_keys(config) == CODE
  assert config_from_dict(config_to_dict(config)) == config
  for text in OVERRIDES:
    assert len(uses.code_keys(load_config(None, [text]))) == text.count(":")


@pytest.mark.parametrize(
  ("text", "is_code"),
  [
    ("env.name=os:system", True),
    ("env.name=unknown:game", True),
    ("env.name=gymnasium:my_envs:Walk-v0", True),
    ("env.name=gymnasium:CartPole-v1", False),
    ("env.name=tiny:catch", False),
    ("env.name=my_envs", False),
    ("algorithm=my_pg:PolicyGradient", True),
    ("algorithm=ppo", False),
    ("network.kind=mlp:make", True),  # refers to a module named mlp
    ("evaluation.opponent=random:Random", True),
  ],
)
def test_code_keys_read_the_text_only(text, is_code):
  assert uses.code_keys(load_config(None, [text])) == ([text] if is_code else [])


def test_the_arguments_of_an_algorithm_are_no_part_of_its_name():
  config = load_config(None, ["algorithm=my_pg:PolicyGradient(rate=0.1, file='a:b')"])
  assert uses.code_keys(config) == ["algorithm=my_pg:PolicyGradient"]
  assert config.algorithm_name == "my_pg:PolicyGradient"
  assert config_from_dict(config_to_dict(config)) == config


@pytest.mark.parametrize(
  ("text", "message"),
  [
    (
      "network.kind=rezzzznet",
      'network.kind="rezzzznet": must be resnet, mlp, conv_latent, multi_input, module:function or a .*e; ',
    ),
    (
      "planners.train.algorithm=gumble",
      (
        "planners.train.algorithm=.*gumbel, puct, stochastic, stochastic_gumbel, module:function or a "
        ".*is gumbel"
      ),
    ),
    (
      "evaluation.opponent=human",
      'evaluation.opponent="human": must be random, mcts, alpha_beta, self, mcts:SIMULATIONS, alpha_beta:D',
    ),
    (
      "learner.extra_losses=[entropy]",
      r'learner.extra_losses\[0\]="entropy": must be module:function or a registered name',
    ),
    ("callbacks=3", "callbacks=3: must be"),
    ("env.kwargs.wrappers=[a:b]", "kwargs.wrappers: not an option; set env.wrappers"),
  ],
)
def test_unknown_names_are_refused_when_the_configuration_is_read(text, message):
  with pytest.raises(UserError, match=message):
    load_config(None, [text])


def test_ppo_has_no_extra_losses():
  with pytest.raises(UserError, match=r"learner.extra_losses=\['a:b'\] needs algorithm=muzero"):
    load_config(None, ["algorithm=ppo", "learner.extra_losses=a:b"])


def test_the_registered_functions_in_use_reach_another_process():
  plugins.register_network("wide")(make)
  plugins.register_network("unused")(lambda: None)
  plugins.register_loss("extra")(make)
  config = load_config(None, ["network.kind=wide", "learner.extra_losses=[extra, my_loss:make]"])
  found = uses.registered_functions(config)
  assert found == {("network", "wide"): make, ("loss", "extra"): make}
  assert found.items() < uses.registered_functions().items()
  plugins.NETWORKS.registered.clear()
  uses.install(pickle.loads(pickle.dumps(found)))
  assert plugins.NETWORKS.get("wide")(1) == (1,)


def test_a_form_is_made_by_the_layer_that_registers_it():
  registry = Registry("player", "opponent", forms=("run:PATH[@checkpoint]",))
  with pytest.raises(UserError, match="opponent=run:a"):
    registry.get("run:a")
  registry.registered["run:PATH[@checkpoint]"] = lambda *args, **kwargs: (args, kwargs)
  assert registry.get("run:a", allow_code=True)(1) == (("run:a", 1), {"allow_code": True})
  assert registry.names() == ["run:PATH[@checkpoint]"]


def test_no_file_can_give_a_permission():
  """A run's configuration comes from others: only a caller gives the permission, and no file keeps it."""
  for key in ("_allows_code", "allows_code", "env._allows_code", "env.kwargs.allow_code"):
    with pytest.raises(UserError, match=key.rpartition(".")[2]):
      load_config(None, [f"{key}=true"])
  config = load_config(None, []).allowing_code(True)
  assert config.env.arguments == {"allow_code": True}
  assert pickle.loads(pickle.dumps(config)).evaluation.allows_code
  assert not config_from_dict(config_to_dict(config)).env.allows_code


def test_libraries_are_those_of_the_environments():
  from moozi.envs import registry

  assert sorted(registry._MODULES) == sorted(plugins.ENVIRONMENTS.built_in)


def test_built_in_names_are_those_of_the_modules():
  from moozi.agent import searches
  from moozi.nn import model

  assert set(model.NETWORKS) == set(plugins.NETWORKS.built_in)
  assert set(searches.SEARCHES) == set(plugins.SEARCHES.built_in)


@pytest.mark.parametrize(
  ("value", "is_built_in"),
  [
    ("mcts:100", True),
    ("run:runs/first@last", True),
    ("run:first", True),  # also matches module:function
    ("zoo:tiny/catch", True),
    ("prior:zoo:catch", True),
    ("mcts:0", False),
    ("mcts:many", False),
    ("run:", False),
    ("walk:first", False),
  ],
)
def test_names_of_players_with_an_argument(value, is_built_in):
  assert plugins.PLAYERS.is_built_in(value) == plugins.PLAYERS.is_known(value) == is_built_in
  use = uses.Use("evaluation.opponent", value, plugins.PLAYERS)
  assert use.is_built_in == is_built_in
  if value.startswith("mcts") and not is_built_in:
    with pytest.raises(
      UserError, match=f"evaluation.opponent={value}: must be random, mcts, alpha_beta, self, mcts:SIM"
    ):
      use.get()


def test_a_run_that_names_another_run_names_no_code():
  config = load_config(None, ["env.name=open_spiel:tic_tac_toe", "evaluation.opponent=run:runs/first"])
  assert uses.code_keys(config) == []


@pytest.mark.parametrize(
  ("text", "call"),
  [
    ("a:b", ("a:b", {})),
    ("a:b()", ("a:b", {})),
    ("a:b(k=3)", ("a:b", {"k": 3})),
    ("own (k=-2.5, on=true, off=False, no=null, mode=last)", ("own", None)),
    ("a:b(x=[1, 'c(d', {'e': (2,)}], y='a, b')", ("a:b", {"x": [1, "c(d", {"e": (2,)}], "y": "a, b"})),
  ],
)
def test_calls(text, call):
  name, arguments = call
  if arguments is None:
    arguments = {"k": -2.5, "on": True, "off": False, "no": None, "mode": "last"}
  assert user_code.split_call(text) == (name, arguments)


@pytest.mark.parametrize(
  "text",
  [
    "a:b(",
    "a:b)",
    "a:b(3)",
    "a:b(k=3",
    "a:b(k=3))",
    "a:b(k=3)(j=4)",
    "a:b(k=3).close()",
    "a:b(**k)",
    "a:b(k=1, k=2)",
    "a:b(k=__import__('os').system('true'))",
    "a:b(k=[x for x in y])",
    "a:b(k=" + "(" * 500 + ")" * 500 + ")",
    "a:b(k=\0)",
    "(k=3)",
    "a:b(k=3) + 1",
  ],
)
def test_texts_that_are_no_calls(text):
  with pytest.raises(UserError, match=r"env\.wrappers") as error:
    config_from_dict({"env": {"wrappers": [text]}})
  assert "\n" not in str(error.value)


def test_wrappers_with_arguments_in_a_configuration():
  # A list in YAML is split at every comma.
  for text in ("[a:wrap(k=3, j=last), b:wrap]", "['a:wrap(k=3, j=last)', b:wrap]"):
    config = load_config(None, [f"env.wrappers={text}"])
    assert config.env.wrappers == ("a:wrap(k=3, j=last)", "b:wrap")
    assert uses.code_keys(config) == ["env.wrappers[0]=a:wrap", "env.wrappers[1]=b:wrap"]
    assert config_from_dict(config_to_dict(config)) == config
  assert load_config(None, ["env.wrappers=a:wrap(k=3, j=4)"]).env.wrappers == ("a:wrap(k=3, j=4)",)
  with pytest.raises(UserError, match="a registered name"):
    load_config(None, ["env.wrappers=nothing(k=3)"])
