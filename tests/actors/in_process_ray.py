"""Stands in for the module `ray`: actors live in this process, and a call is made when it is asked for.

What a driver does with results, in which order and how many at once, is the same; nothing takes time, so
every result is there when it is waited for.
"""

import contextlib
import types


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


class Reference:
  """A result, or the error in place of one."""

  def __init__(self, value=None, error=None):
    self.value, self.error = value, error


class _Method:
  def __init__(self, method, num_returns=1):
    self._method, self._num_returns = method, num_returns

  def options(self, num_returns):
    return _Method(self._method, num_returns)

  def remote(self, *args):
    try:
      value = self._method(*[get(arg) if isinstance(arg, Reference) else arg for arg in args])
    except Exception as error:
      failed = [Reference(error=error) for _ in range(self._num_returns)]
      return failed if self._num_returns > 1 else failed[0]
    if self._num_returns == 1:
      return Reference(value)
    assert len(value) == self._num_returns
    return [Reference(part) for part in value]


class _Dead:
  """Whoever calls it is told of its death."""

  def __init__(self, actor_id):
    self._actor_id = actor_id

  def __getattr__(self, name):
    def call(*_):
      raise ActorDiedError(self._actor_id)

    return call


class _Handle:
  def __init__(self, actor):
    self._actor = actor
    self._actor_id = types.SimpleNamespace(hex=lambda: str(id(self)))

  def __getattr__(self, name):
    return _Method(getattr(self._actor, name))

  def die(self):
    """From the next call on."""
    self._actor = _Dead(self._actor_id.hex())


def get(references):
  if isinstance(references, list):
    return [get(reference) for reference in references]
  if references.error is not None:
    raise references.error
  return references.value


def remote(**_):
  def make_class(cls):
    return types.SimpleNamespace(remote=lambda *args, **kwargs: _Handle(cls(*args, **kwargs)))

  return make_class


def wait(references, num_returns=1, timeout=None):
  return references[:num_returns], references[num_returns:]


RAY = types.SimpleNamespace(
  get=get,
  remote=remote,
  wait=wait,
  kill=lambda handle: None,
  cluster_resources=lambda: {"CPU": 1000.0},
  exceptions=types.SimpleNamespace(
    RayError=RayError,
    RayActorError=RayActorError,
    ObjectLostError=ObjectLostError,
    ActorDiedError=ActorDiedError,
  ),
)


@contextlib.contextmanager
def connected(config):
  """In the place of `actors.cluster.connected`."""
  yield RAY
