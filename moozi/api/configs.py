"""The configurations that come with MooZi."""

from moozi.io.config_files import ConfigInfo, list_configs


def configs() -> list[ConfigInfo]:
  """Returns the configurations with an environment, which `moozi.train` takes by name, sorted by name."""
  return list_configs()
