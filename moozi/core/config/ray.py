"""The Ray runtime."""

from pydantic import Field

from moozi.core.config.section import ActorResources, NonNegativeInt, PositiveInt, Section


class RayConfig(Section):
  """The Ray runtime; with `address` null, a local one that listens on loopback only."""

  address: str | None = Field(
    None, description="host:port of an existing Ray cluster to join; null: start a local one"
  )
  num_cpus: PositiveInt | None = Field(None, description="cores of the local Ray; null: all that Ray finds")
  num_gpus: NonNegativeInt | None = Field(None, description="GPUs of the local Ray; null: all that Ray finds")
  object_store_mib: PositiveInt = Field(512, description="MiB of shared memory for the local Ray's objects")
  segments_in_flight: PositiveInt = Field(
    2, description="maximum number of unfinished calls of each training worker; not read by PPO"
  )
  batches_in_flight: PositiveInt = Field(
    2, description="maximum number of unfinished calls of the parameter server; not read by PPO"
  )
  publish_period_updates: PositiveInt = Field(
    64,
    description="learner steps between two publications of parameters to the actors; with "
    "learner.target_decay also of the target network",
  )
  min_workers: PositiveInt | None = Field(
    None,
    description="number of training workers that must have room in the cluster when a run starts; the others "
    "start when it has room for them; null: workers.num_workers; not for ppo and your own algorithms",
  )
  max_workers: PositiveInt | None = Field(
    None,
    description="maximum number of training workers; more than workers.num_workers start while the cluster "
    "has room; replay.capacity is divided among the environments of this number of workers; null: "
    "workers.num_workers; not for ppo and your own algorithms",
  )
  max_restarts: NonNegativeInt = Field(3, description="maximum consecutive restarts of a failed actor")
  # The driver reads the answers every two seconds.
  heartbeat_timeout_s: int = Field(
    100,
    ge=10,
    description="seconds without an answer after which an inference server, or a process of a learner on "
    "several hosts, counts as hung; it is then restarted (docs/faults.md)",
  )
  replay_shards: PositiveInt = Field(
    1,
    description="number of replay actors; each stores the steps of its share of the training workers, and "
    "batches are drawn from all (docs/cluster.md). With runtime=local, the shards are in one process",
  )
  learner: ActorResources = ActorResources(num_cpus=1.0, num_threads=0)
  replay: ActorResources = ActorResources(num_cpus=0.125)
