"""A fake `ray` module: actors are objects in this process, and each call runs at once.

The driver makes the same calls in the same order as with Ray, but never waits for a result. A test can make
an actor fail at a given call.
"""

import collections
import contextlib
import itertools
import logging
import types
import weakref

import pytest

from moozi.actors import resources
from moozi.actors.remote import inference_client, process
from moozi.envs import guard


class RayError(Exception):
  pass


class RayActorError(RayError):
  pass


class ObjectLostError(RayError):
  pass


class ActorDiedError(RayActorError):
  def __init__(self, actor_id=None):
    super().__init__(f"actor {actor_id} died")
    self.actor_id = actor_id


class GetTimeoutError(RayError, TimeoutError):
  """The error of a result that does not arrive in time."""


class ActorAlreadyExistsError(ValueError, RayError):
  """The error of a new actor whose name another one has."""


class OutOfMemoryError(RayError):
  """The error of an actor that Ray's memory monitor has killed."""


class Reference:
  """A result. `handle` is the actor whose start it reports; None for other results."""

  is_ready = True

  def __init__(self, value=None, error=None, handle=None):
    self.value, self.error = value, error
    # As in Ray, a reference keeps no handle.
    self._handle = None if handle is None else weakref.ref(handle)

  @property
  def handle(self):
    return None if self._handle is None else self._handle()


class Watch:
  """The reference of a call that ends only with its actor."""

  value = None

  def __init__(self, handle):
    # As in Ray, a reference keeps no handle.
    self._handle, self.error = weakref.ref(handle), ActorDiedError(handle._actor_id.hex())

  @property
  def is_ready(self):
    handle = self._handle()
    return handle is None or handle._is_dead


class Ray:
  """A fake cluster.

  Args:
    failures: {(class, method): numbers of the calls at which the actor fails}. Calls are counted from 1, over
      all actors of the class. A failed actor runs neither that call nor later ones.
    errors: {(class, method): {number of the call: the exception that it raises}}.
    is_memory_low: whether actors fail as if Ray's memory monitor had killed them.

  Attributes:
    made: (class, arguments) of every actor, in order of creation.
    leaving: {id: deadline} of the nodes that will leave.
    named: the actor of each name. As in Ray, it has the name until it is killed,
      or until there is no handle of it.
  """

  exceptions = types.SimpleNamespace(
    RayError=RayError,
    RayActorError=RayActorError,
    ObjectLostError=ObjectLostError,
    ActorDiedError=ActorDiedError,
    GetTimeoutError=GetTimeoutError,
    OutOfMemoryError=OutOfMemoryError,
    ActorAlreadyExistsError=ActorAlreadyExistsError,
  )

  def __init__(self, failures=None, errors=None, is_memory_low=False):
    self._is_memory_low = is_memory_low
    self._failures, self._errors, self.made = failures or {}, errors or {}, []
    self.named = weakref.WeakValueDictionary()
    self._counts = collections.Counter()
    self._ids = itertools.count()
    self.leaving, self._node_of = {}, {}
    state = types.SimpleNamespace(get_draining_nodes=lambda: dict(self.leaving))
    self._private = types.SimpleNamespace(state=types.SimpleNamespace(state=state, actors=self._actor))
    self._handle_of = weakref.WeakValueDictionary()

  def _actor(self, actor_id):
    """Returns what Ray knows about an actor."""
    handle = self._handle_of.get(actor_id)
    is_alive = handle is not None and not handle._is_dead
    node = self._node_of.get(actor_id, "node")
    return {"Address": {"NodeID": node}, "State": "ALIVE" if is_alive else "DEAD"}

  def get(self, references, timeout=None):
    return get(references)

  def put(self, value):
    return Reference(value)

  def wait(self, references, num_returns=1, timeout=None):
    ready = [reference for reference in references if reference.is_ready][:num_returns]
    return ready, [reference for reference in references if reference not in ready]

  def get_actor(self, name):
    if name not in self.named:
      raise ValueError(name)
    return self.named[name]

  def kill(self, handle):
    handle._is_dead = True
    for name in [name for name, named in self.named.items() if named is handle]:
      del self.named[name]

  def fail(self, handle):
    """Ends an actor as a failure of its process does: it keeps its name."""
    handle._is_dead = True

  def cluster_resources(self):
    return {"CPU": 1000.0}

  def nodes(self):
    return [{"NodeID": "node", "Alive": True, "Resources": self.cluster_resources()}]

  def remote(self, name=None, **options):
    def make_class(cls):
      def make(*args, **kwargs):
        if name in self.named:
          raise ActorAlreadyExistsError(name)
        handle = _Handle(self, cls(*args, **kwargs), f"{next(self._ids):04x}", options)
        self._handle_of[handle._actor_id.hex()] = handle
        self.made.append((cls.__name__, args))
        if name is not None:
          self.named[name] = handle
        return handle

      return types.SimpleNamespace(remote=make)

    return make_class

  def call(self, handle, name, args):
    if not handle._is_dead:
      key = type(handle._actor).__name__, name
      self._counts[key] += 1
      if self._counts[key] in self._errors.get(key, ()):
        raise self._errors[key][self._counts[key]]
      handle._is_dead = self._counts[key] in self._failures.get(key, ())
    if handle._is_dead:
      raise OutOfMemoryError("killed") if self._is_memory_low else ActorDiedError(handle._actor_id.hex())
    if name == "__ray_ready__":
      return True
    return getattr(handle._actor, name)(*args)


class _Method:
  def __init__(self, handle, name, num_returns=1):
    self._handle, self._name, self._num_returns = handle, name, num_returns

  def options(self, num_returns=1, concurrency_group=None):
    return _Method(self._handle, self._name, num_returns)

  def remote(self, *args):
    handle = self._handle
    if self._name == "wait_for_end":
      return Watch(handle)
    try:
      values = [get(arg) if isinstance(arg, Reference) else arg for arg in args]
      value = handle._ray.call(handle, self._name, values)
    except Exception as error:
      failed = [Reference(error=error) for _ in range(self._num_returns)]
      return failed if self._num_returns > 1 else failed[0]
    if self._num_returns == 1:
      return Reference(value, handle=handle if self._name == "__ray_ready__" else None)
    assert len(value) == self._num_returns
    return [Reference(part) for part in value]


class _Handle:
  def __init__(self, ray, actor, actor_id, options):
    self._ray, self._actor, self._is_dead, self._options = ray, actor, False, options
    self._actor_id = types.SimpleNamespace(hex=lambda: actor_id)

  def __getattr__(self, name):
    return _Method(self, name)


def get(references):
  if isinstance(references, list):
    return [get(reference) for reference in references]
  if references.error is not None:
    raise references.error
  return references.value


RAY = Ray()


@contextlib.contextmanager
def connected(ray=None):
  """Yields a fake cluster, `ray` or a new one, that the driver uses inside the block."""
  ray = Ray() if ray is None else ray
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(resources, "connected", lambda config: contextlib.nullcontext(ray))
    patch.setattr(process, "prepare", lambda setup: logging.getLogger(setup.name))
    patch.setattr(inference_client, "connected_ray", lambda: ray)
    patch.setattr(guard, "allow_exit", lambda log: None)
    yield ray
