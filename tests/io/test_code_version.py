"""The code's commit, as git tells it."""

import subprocess

from moozi.io.checkpoints import code_commit


def test_the_commit_and_whether_files_differ_from_it(tmp_path):
  def git(*arguments) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
    return done.stdout.strip()

  assert code_commit(tmp_path) is None
  git("init", "-q")
  (tmp_path / "file").write_text("1")
  git("add", "file")
  git("commit", "-qm", "first")
  git("tag", "-a", "v1", "-m", "a name that says less")
  head = git("rev-parse", "HEAD")
  assert code_commit(tmp_path) == head[:12]
  (tmp_path / "file").write_text("2")
  assert code_commit(tmp_path) == f"{head[:12]}-dirty"
  (tmp_path / "inside").mkdir()
  assert code_commit(tmp_path / "inside") is None, "another one's repository"
