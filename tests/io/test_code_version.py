"""The code's commit, read from a repository's files, against what git itself says."""

import shutil
import subprocess

import pytest

from moozi.io.code_version import code_commit

if shutil.which("git") is None:
  pytest.skip("git is not installed", allow_module_level=True)


def git(folder, *arguments):
  identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
  command = ["git", "-C", str(folder), *identity, *arguments]
  return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
  folder = tmp_path / "here"
  folder.mkdir()
  git(folder, "init", "-b", "some/branch")
  git(folder, "commit", "--allow-empty", "-m", "one")
  git(folder, "commit", "--allow-empty", "-m", "two")
  return folder


def test_the_commit_of_a_branch_packed_or_not_and_of_none(repository):
  head = git(repository, "rev-parse", "HEAD")
  assert code_commit(repository) == head
  git(repository, "pack-refs", "--all")
  assert code_commit(repository) == head
  git(repository, "checkout", "--detach", "HEAD~")
  assert code_commit(repository) == git(repository, "rev-parse", "HEAD") != head


def test_the_commit_of_a_worktree(repository, tmp_path):
  git(repository, "worktree", "add", "-b", "other", str(tmp_path / "there"), "HEAD~")
  assert code_commit(tmp_path / "there") == git(repository, "rev-parse", "HEAD~")


def test_without_a_repository_there_is_none(tmp_path):
  assert code_commit(tmp_path) is None
  (tmp_path / ".git").mkdir()
  assert code_commit(tmp_path) is None
  (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/unborn\n")
  assert code_commit(tmp_path) is None
