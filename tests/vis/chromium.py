"""Controls a headless Chromium by Chrome's DevTools protocol over two pipes.

Source: https://chromedevtools.github.io/devtools-protocol. With `--remote-debugging-pipe` the browser
reads commands from its file descriptor 3 and writes results and events to 4. Each message is JSON and ends
with a NUL.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_S = 240.0


def find_chromium() -> str:
  """Returns the browser's path; fails the test if no browser is installed."""
  for name in NAMES:
    path = shutil.which(name)
    if path is not None:
      return path
  pytest.fail("this test needs Chromium; install it, on Debian with: apt-get install chromium")


class Page:
  """A context manager for a page in its own browser process."""

  def __init__(self) -> None:
    program = find_chromium()
    self._folder = tempfile.mkdtemp(prefix="moozi-chromium-")
    # The descriptors must be above 4, because the child copies two of them to 3 and 4.
    ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in _two_pipes()]
    theirs_in, self._out, self._in, theirs_out = ends
    arguments = [
      program,
      "--headless=new",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--disable-background-networking",
      "--remote-debugging-pipe",
      f"--user-data-dir={self._folder}",
      "about:blank",
    ]
    actions = [
      (os.POSIX_SPAWN_DUP2, theirs_in, 3),
      (os.POSIX_SPAWN_DUP2, theirs_out, 4),
      (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    self._pid = os.posix_spawn(program, arguments, os.environ, file_actions=actions, setpgroup=0)
    os.close(theirs_in)
    os.close(theirs_out)
    self._buffer, self._last_id, self._session = b"", 0, None
    self.events: list[dict[str, Any]] = []
    targets = self.call("Target.getTargets")["targetInfos"]
    target = next(t["targetId"] for t in targets if t["type"] == "page")
    self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Runtime", "Log", "Page", "Network"):
      self.call(f"{domain}.enable")

  def __enter__(self) -> "Page":
    return self

  def __exit__(self, *_: object) -> None:
    os.close(self._out)
    os.close(self._in)
    os.killpg(self._pid, signal.SIGKILL)
    os.waitpid(self._pid, 0)
    # The browser's child processes may still write files, so errors are ignored.
    shutil.rmtree(self._folder, ignore_errors=True)

  def call(self, method: str, **params: Any) -> dict[str, Any]:
    """Sends a command and returns its result; events that arrive before the result go to `events`."""
    self._last_id += 1
    message = {"id": self._last_id, "method": method, "params": params}
    if self._session is not None:
      message["sessionId"] = self._session
    data = json.dumps(message).encode() + b"\0"
    while data:
      data = data[os.write(self._out, data) :]
    while True:
      answer = self._receive()
      if answer.get("id") == self._last_id:
        if "error" in answer:
          raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]
      self.events.append(answer)

  def _receive(self) -> dict[str, Any]:
    while b"\0" not in self._buffer:
      if not select.select([self._in], [], [], _TIMEOUT_S)[0]:
        raise RuntimeError(f"the browser has not answered for {_TIMEOUT_S:.0f} s")
      data = os.read(self._in, 1 << 20)
      if not data:
        raise RuntimeError("the browser has ended")
      self._buffer += data
    message, _, self._buffer = self._buffer.partition(b"\0")
    return json.loads(message)

  def open(self, path: Path | str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
    """Opens a file or an address and waits for its load event."""
    self.call(
      "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )
    feature = {"name": "prefers-color-scheme", "value": scheme}
    self.call("Emulation.setEmulatedMedia", features=[feature])
    self.events.clear()
    url = path if isinstance(path, str) else path.absolute().as_uri()
    self.call("Page.navigate", url=url)
    while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
      self.events.append(self._receive())

  def evaluate(self, expression: str) -> Any:
    """Returns the value of a JavaScript expression, or of its promise; raises RuntimeError if it throws."""
    answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in answer:
      raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
    return answer["result"].get("value")

  def wait_for(self, expression: str) -> None:
    """Waits until a JavaScript expression is true."""
    end = time.monotonic() + _TIMEOUT_S
    while not self.evaluate(expression):
      assert time.monotonic() < end, f"never true: {expression}"
      time.sleep(0.05)

  def click(self, selector: str) -> None:
    """Scrolls the first element that matches the selector into view and clicks on its center."""
    box = self.evaluate(
      f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
      " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
      " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
      self.call(
        "Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", buttons=1, clickCount=1
      )

  def press(self, key: str) -> None:
    """Presses a key on the focused element; `key` is its DOM name."""
    codes = {
      "ArrowLeft": 37,
      "ArrowUp": 38,
      "ArrowRight": 39,
      "ArrowDown": 40,
      "Tab": 9,
      "End": 35,
      "Home": 36,
    }
    text = {"text": key} if len(key) == 1 else {}
    code = codes.get(key, ord(key[0]))
    for kind in ("keyDown", "keyUp"):
      sent = text if kind == "keyDown" else {}
      self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **sent)

  def problems(self) -> list[str]:
    """Returns errors, warnings and exceptions of the console, and requests to other files or hosts."""
    self.evaluate("0")
    out = []
    for event in self.events:
      method, params = event.get("method"), event.get("params", {})
      if method == "Runtime.exceptionThrown" or (
        method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
      ):
        out.append(json.dumps(params)[:400])
      elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        out.append(json.dumps(params["entry"])[:400])
      elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
        ("file:", "data:")
      ):
        out.append(f"a request to {params['request']['url']}")
    return out

  def screenshot(self, path: Path, is_whole: bool = False) -> Path:
    """Writes a PNG of the visible part or of the whole page; returns its path."""
    image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
    path.write_bytes(base64.b64decode(image["data"]))
    return path


def _two_pipes() -> tuple[int, int, int, int]:
  theirs_in, ours_out = os.pipe()
  ours_in, theirs_out = os.pipe()
  return theirs_in, ours_out, ours_in, theirs_out
