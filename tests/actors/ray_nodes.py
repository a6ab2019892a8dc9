"""A fake `ray` module whose cluster has nodes: actors wait for room, and end with their node."""

import types

from tests.actors import in_process_ray


class RayWithNodes(in_process_ray.Ray):
  """A fake cluster. Each actor runs on the first node with room, in the order of creation.

  Args:
    nodes: {id: {resource: amount}}; `add_node` and `end_node` change it. No actor is started on nodes that
      are among `leaving`.
  """

  def __init__(self, nodes):
    super().__init__()
    self._resources, self._handles = nodes, []

  def nodes(self):
    return [{"NodeID": x, "Alive": True, "Resources": dict(y)} for x, y in self._resources.items()]

  def cluster_resources(self):
    names = {name for node in self._resources.values() for name in node}
    return {name: sum(node.get(name, 0.0) for node in self._resources.values()) for name in names}

  def add_node(self, name, **resources):
    self._resources[name] = resources

  def end_node(self, name):
    """Removes a node, with or without notice; its actors end."""
    del self._resources[name]
    self.leaving.pop(name, None)
    for handle in self._handles:
      if self._node_of.get(handle._actor_id.hex()) == name:
        handle._is_dead = True

  def node_of(self, handle):
    """Returns the id of an actor's node, or None if it waits for room; places the actors that have room."""
    for x in self._handles:
      if not x._is_dead and x._actor_id.hex() not in self._node_of:
        node = next(
          (name for name in self._resources if name not in self.leaving and self._fits(x, name)), None
        )
        if node is not None:
          self._node_of[x._actor_id.hex()] = node
    return self._node_of.get(handle._actor_id.hex())

  def _fits(self, handle, node):
    on_node = [x for x in self._handles if not x._is_dead and self._node_of.get(x._actor_id.hex()) == node]
    return all(
      sum(x._options[field] for x in [*on_node, handle]) <= self._resources[node].get(resource, 0.0) + 1e-9
      for resource, field in (("CPU", "num_cpus"), ("GPU", "num_gpus"))
    )

  def remote(self, **options):
    make_class = super().remote(**options)

    def make_known(cls):
      made = make_class(cls)

      def make(*args, **kwargs):
        handle = made.remote(*args, **kwargs)
        self._handles.append(handle)
        self.node_of(handle)
        return handle

      return types.SimpleNamespace(remote=make)

    return make_known

  def wait(self, references, num_returns=1, timeout=None):
    ready = [r for r in references if r.handle is None or r.handle._is_dead or self.node_of(r.handle)]
    ready = ready[:num_returns]
    return ready, [r for r in references if r not in ready]

  def get(self, references, timeout=None):
    if not isinstance(references, list) and references.handle is not None and references.handle._is_dead:
      raise in_process_ray.ActorDiedError(references.handle._actor_id.hex())
    return super().get(references, timeout)
