"""Puts files from outside the package into the wheel. pyproject.toml has all other settings."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Folders at the top level of a clone. `moozi.io.config_files.data_root` finds them in both places.
FOLDERS = ("config", "zoo")


class BuildWithData(build_py):
  """Copies the folders to `moozi/data`. An editable install reads those of the clone."""

  def run(self) -> None:
    super().run()
    if self.editable_mode:
      return
    for name in FOLDERS:
      target = Path(self.build_lib, "moozi", "data", name)
      shutil.rmtree(target, ignore_errors=True)  # an earlier build may have left files
      if Path(name).is_dir():
        shutil.copytree(name, target)


setup(cmdclass={"build_py": BuildWithData})
