"""Tests of the manifests in examples/cluster: their schemas, and that the run that they start fits."""

import json
import shlex
from pathlib import Path

import jsonschema
import pytest
import yaml

from moozi.actors.resources import check_resources, demands, num_fitting
from moozi.core.config import Config
from moozi.io.config import load_config
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples" / "cluster"


def _object(required: str, optional: str = "", **properties):
  """Returns the schema of an object with these fields and no others."""
  names = {name: {} for name in f"{required} {optional}".split()}
  return {
    "type": "object",
    "required": required.split(),
    "properties": names | properties,
    "additionalProperties": False,
  }


# The part of the schema of ray.io/v1 that the manifest uses, with the fields that it requires. Source:
# ray-operator/config/crd/bases/ray.io_rayjobs.yaml of KubeRay, commit feeaf72. The whole schema has 1.4 MB.
TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
RESOURCES = {"type": "object", "additionalProperties": TEXT}
CONTAINER = _object(
  "name image resources",
  "lifecycle volumeMounts env",
  name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
  resources=_object("requests limits", requests=RESOURCES, limits=RESOURCES),
  volumeMounts={"type": "array", "items": _object("name mountPath")},
  lifecycle=_object("preStop", preStop=_object("exec", exec=_object("command"))),
)
POD = _object(
  "spec",
  spec=_object(
    "containers",
    "restartPolicy volumes terminationGracePeriodSeconds",
    containers={"type": "array", "items": CONTAINER, "minItems": 1},
    restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
    terminationGracePeriodSeconds=COUNT,
  ),
)
PARAMS = {"type": "object", "additionalProperties": TEXT}  # `ray start` receives text
AUTOSCALER = _object(
  "",
  "upscalingMode",
  version={"enum": ["v1", "v2"]},
  idleTimeoutSeconds=COUNT,
)
GROUP = _object(
  "groupName minReplicas maxReplicas template",
  groupName=TEXT,
  replicas=COUNT,
  minReplicas=COUNT,
  maxReplicas=COUNT,
  rayStartParams=PARAMS,
  template=POD,
)
CLUSTER = _object(
  "headGroupSpec",
  headGroupSpec=_object("template", rayStartParams=PARAMS, template=POD),
  workerGroupSpecs={"type": "array", "items": GROUP},
  rayVersion=TEXT,
  enableInTreeAutoscaling={"type": "boolean"},
  autoscalerOptions=AUTOSCALER,
)
JOB = _object(
  "apiVersion kind metadata spec",
  apiVersion={"const": "ray.io/v1"},
  kind={"const": "RayJob"},
  metadata=_object("name"),
  spec=_object(
    "entrypoint rayClusterSpec",
    entrypoint=TEXT,
    shutdownAfterJobFinishes={"type": "boolean"},
    rayClusterSpec=CLUSTER,
  ),
)


def _load(name: str):
  return yaml.safe_load((EXAMPLES / name).read_text("utf-8"))


def _config(command: str) -> Config:
  """Returns the configuration of `moozi train NAME KEY=VALUE…`."""
  program, verb, name, *overrides = shlex.split(command)
  assert (program, verb) == ("moozi", "train")
  return load_config(name, overrides)


def _commands(page: str) -> list[str]:
  """Returns the commands on a page that the examples start on a cluster, between single quotes."""
  return [part for part in page.split("'") if part.startswith("moozi train")]


def _check_room(config: Config, least: list[dict], most: list[dict]) -> None:
  """Checks that a run starts on the smallest cluster, and fills the largest one."""
  total = {name: sum(node.get(name, 0.0) for node in least) for name in ("CPU", "GPU")}
  check_resources(config, total)
  assert config.min_workers <= num_fitting(config, least) < config.max_workers
  assert num_fitting(config, most) == config.max_workers
  head = least[0]
  assert "GPU" not in head
  learner = demands(config)["ray.learner"][1]
  assert any(node.get("GPU", 0.0) >= learner.num_gpus > 0 for node in least)


def test_the_manifest_of_kuberay_has_the_schema():
  manifest = _load("kuberay.yaml")
  jsonschema.validate(manifest, JOB)
  spec = manifest["spec"]["rayClusterSpec"]
  assert f"rayproject/ray:{spec['rayVersion']}-" in (EXAMPLES / "Dockerfile").read_text()
  assert f"ray=={spec['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
  pods = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
  for pod in (group["template"]["spec"] for group in pods):
    mounted = {x["name"] for c in pod["containers"] for x in c.get("volumeMounts", ())}
    assert mounted == {volume["name"] for volume in pod.get("volumes", ())}
    grace = pod.get("terminationGracePeriodSeconds")
    assert grace is None or grace > 45  # seconds that preStop sleeps


def test_the_schema_of_kuberay_refuses_mistakes():
  manifest = _load("kuberay.yaml")
  manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 2
  with pytest.raises(jsonschema.ValidationError, match="is not of type 'string'"):
    jsonschema.validate(manifest, JOB)


def test_the_run_of_kuberay_fits_its_pods():
  spec = _load("kuberay.yaml")["spec"]
  cluster = spec["rayClusterSpec"]

  def node(group) -> dict[str, float]:
    requests = group["template"]["spec"]["containers"][0]["resources"]["requests"]
    found = {"CPU": float(group["rayStartParams"].get("num-cpus", requests["cpu"]))}
    return found | ({"GPU": float(requests["nvidia.com/gpu"])} if "nvidia.com/gpu" in requests else {})

  head, groups = node(cluster["headGroupSpec"]), cluster["workerGroupSpecs"]
  least = [head, *(node(group) for group in groups for _ in range(group["minReplicas"]))]
  most = [head, *(node(group) for group in groups for _ in range(group["maxReplicas"]))]
  _check_room(_config(spec["entrypoint"]), least, most)


def test_the_file_of_ray_up_has_rays_schema():
  ray = pytest.importorskip("ray")
  schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
  file = _load("ray_up.yaml")
  jsonschema.validate(file, schema)
  types = file["available_node_types"]
  assert file["head_node_type"] in types
  assert file["max_workers"] == sum(x.get("max_workers", 0) for x in types.values())
  with pytest.raises(jsonschema.ValidationError):
    jsonschema.validate(file | {"min_workers": 1}, schema)


def test_the_run_on_the_cluster_of_ray_up_fits_its_nodes():
  file = _load("ray_up.yaml")
  types = file["available_node_types"]
  head = {name: float(x) for name, x in types[file["head_node_type"]]["resources"].items()}

  def nodes(key: str) -> list[dict]:
    return [head] + [dict(x["resources"]) for x in types.values() for _ in range(x.get(key, 0))]

  (command,) = _commands((ROOT / "docs" / "cluster.md").read_text("utf-8"))
  _check_room(_config(command), nodes("min_workers"), nodes("max_workers"))


def test_the_thesiss_reservation():
  config = load_config("thesis/cluster")
  workers, share = demands(config)["workers.resources"]
  assert (workers, share.num_cpus) == (30, 1.0)
  assert 0.1 <= share.num_gpus <= 0.2
  check_resources(config, {"CPU": 72.0, "GPU": 8.0})
  assert num_fitting(config, [{"CPU": 72.0, "GPU": 8.0}]) == 30
  for name in ("asterix", "breakout", "breakout_sticky", "freeway", "minatar", "space_invaders"):
    other = load_config(f"thesis/{name}")
    check_resources(other, {"CPU": 72.0})
    check_resources(load_config(f"thesis/{name}", ["workers.num_workers=1"]), {"CPU": 2.0})
