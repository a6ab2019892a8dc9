"""The user's functions: loads `module:function`, and describes the errors of the user's code in one line."""

import ast
import contextlib
import dataclasses
import difflib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

from moozi.core.errors import EnvHung, UserError, as_exceptions, one_line

_CODE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclasses.dataclass(frozen=True)
class Plugin:
  """A user's function. A call turns the function's errors into a UserError, as `errors` does.

  Attributes:
    where: `key=value`, the start of every error message.
    function: the function.
  """

  where: str
  function: Callable[..., Any]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    with self.errors("the call failed"):
      return self.function(*args, **kwargs)

  @contextlib.contextmanager
  def errors(self, what: str, kind: type[UserError] = UserError) -> Iterator[None]:
    """Turns errors and `sys.exit` of the user's code into a `kind` with the text of `describe`.

    UserError, EnvHung and KeyboardInterrupt pass unchanged.
    """
    try:
      yield
    except (UserError, EnvHung, KeyboardInterrupt):
      raise
    except BaseException as error:
      raise kind(f"{self.where}: {what}: {self.describe(error)}") from error

  def describe(self, error: BaseException) -> str:
    """Describes an error in one line, with the last place of its traceback in the user's files, if any."""
    files: tuple[str, ...] = ()
    with contextlib.suppress(Exception), as_exceptions():  # attributes of callable objects can be anything
      code, module = getattr(self.function, "__code__", None), getattr(self.function, "__module__", None)
      files = (code.co_filename,) if type(code) is types.CodeType else ()
      files += _files(module) if type(module) is str else ()
    return describe_error(error, files)


def split_call(value: str) -> tuple[str, dict[str, Any]]:
  """Returns the name and the arguments in `NAME` or `NAME(key=value, …)`, such as `my_wrappers:stack(n=4)`.

  Values are Python literals; true, false and null are True, False and None; any other word is a text.

  Raises: ValueError: the text has another form.
  """
  name, bracket, rest = value.partition("(")
  if not bracket:
    return value, {}
  try:
    call = ast.parse(f"f({rest}", mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
      raise ValueError
    arguments = {str(x.arg): _literal(x.value) for x in call.keywords if x.arg is not None}
    if len(arguments) < len(call.keywords):  # **arguments, or the same key twice
      raise ValueError
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    raise ValueError(f"{one_line(value, 80)!r}: must be NAME or NAME(key=value, …)") from None
  return name.rstrip(), arguments


def _literal(node: ast.expr) -> Any:
  if isinstance(node, ast.Name):
    return {"true": True, "false": False, "null": None}.get(node.id, node.id)
  return ast.literal_eval(node)


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
  """Returns a function's signature; None if none can be read, as of some functions in C."""
  try:
    with as_exceptions():
      return inspect.signature(function)
  except Exception:  # `__signature__` of a callable object can be anything
    return None


def takes(function: Callable[..., Any], name: str) -> bool:
  """Returns whether a function has a parameter `name` that accepts a keyword; `**kwargs` does not count."""
  signature = signature_of(function)
  parameter = None if signature is None else signature.parameters.get(name)
  return parameter is not None and parameter.kind in (
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
  )


def is_code(value: str) -> bool:
  """Returns whether the value has the form `module:function`."""
  return _CODE.fullmatch(value) is not None


def describe_path(value: str) -> str:
  """Returns the hint for a function in another form than `module:function`; empty for other text.

  The forms are `package.module.function`, `module.py:function` and `folder/module.py:function`.
  """
  path, _, function = value.rpartition(":" if ":" in value else ".")
  module = path.removesuffix(".py").strip("./").replace("/", ".")
  meant = f"{module}:{function}"
  return f"; did you mean {meant}?" if meant != value and is_code(meant) and path else ""


def is_found(value: str) -> bool:
  """Returns whether the package of `module:function` can be found. Does not run its code.

  If the package is in the current folder, adds this folder to Python's path (sys.path).
  """
  if not is_code(value):
    return False
  package = value.partition(":")[0].partition(".")[0]
  if package in sys.modules:
    return True
  folder = os.getcwd()
  if importlib.machinery.PathFinder.find_spec(package, [folder]) is not None:
    # The current folder comes first, as with `python -m`. A local Ray's processes run in the same folder.
    if folder not in sys.path:
      sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return True
  return importlib.util.find_spec(package) is not None


def describe_missing(name: str) -> str:
  """Returns the error message for `module:function` if `is_found` does not find its package."""
  package = name.partition(":")[0].partition(".")[0]
  # The module that was meant is most likely in the current folder.
  modules = [module.name for module in pkgutil.iter_modules([os.getcwd()])]
  if nearest := difflib.get_close_matches(package, modules, n=1):
    return f"there is no module {package}; the nearest in the current folder is {nearest[0]}"
  return (
    f"there is no module {package} in the current folder ({os.getcwd()}) or on Python's path (sys.path); "
    "start moozi in the module's folder, or add that folder to PYTHONPATH"
  )


def describe_error(error: BaseException, files: tuple[str, ...]) -> str:
  """Describes an error in one line, with its last place in files whose paths start with one of `files`.

  Without such a place, the line has none.
  """
  places = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(files)]
  where = f"{places[-1].filename}:{places[-1].lineno}: " if files and places else ""
  return one_line(f"{where}{type(error).__name__}: {one_line(error)}", 500)


def load(where: str, value: str) -> Callable[..., Any]:
  is_found(value)
  module_name, _, attribute = value.partition(":")
  try:
    module = importlib.import_module(module_name)
    is_there = hasattr(module, attribute)
  except KeyboardInterrupt:
    raise
  except BaseException as error:
    if (
      isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}.")
    ):
      is_package = error.name == module_name.partition(".")[0]
      missing = f"there is no module {error.name}{describe_path(value)}"
      text = describe_missing(value) if is_package else missing
      raise UserError(f"{where}: {text}") from error
    text = describe_error(error, _files(module_name))
    raise UserError(f"{where}: the module {module_name} cannot be imported: {text}") from error
  if not is_there:
    functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    nearest = difflib.get_close_matches(attribute, functions, n=1)
    hint = f"; the nearest is {nearest[0]}" if nearest else ""
    raise UserError(f"{where}: the module {module_name} has no {attribute}{hint}")
  return _check_callable(where, attribute, getattr(module, attribute))


def load_entry_point(where: str, entry: importlib.metadata.EntryPoint) -> Callable[..., Any]:
  try:
    function = entry.load()
  except KeyboardInterrupt:
    raise
  except BaseException as error:
    text = describe_error(error, _files(entry.module))
    raise UserError(f"{where}: the entry point {entry.value} cannot be loaded: {text}") from error
  return _check_callable(where, entry.value, function)


def _check_callable(where: str, name: str, function: Any) -> Callable[..., Any]:
  if not callable(function):
    raise UserError(f"{where}: {name} is a {type(function).__name__}; must be a function")
  return function  # type: ignore[no-any-return]


def _files(module_name: str) -> tuple[str, ...]:
  """Returns the folders of the module's package, or the module's own file if it has no package."""
  try:
    spec = importlib.util.find_spec(module_name.partition(".")[0])
  except (ImportError, ValueError):  # a module without a spec, such as __main__
    return ()
  if spec is None:
    return ()
  folders = tuple(f"{folder}{os.sep}" for folder in spec.submodule_search_locations or ())
  return folders or ((spec.origin,) if spec.origin else ())
