"""Functions of the user's own, which settings and options name as `module:function`: a reward, a judge."""

import importlib
import inspect
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from recipe.config.base import FUNCTION_NAME
from recipe.errors import InputError, first_line

Function = Callable[..., Any]


def load_function(name: str) -> Function:
    """The function that `module:function` names; the module is looked for where Python looks, then in this folder.

    Raises InputError where there is none or its module cannot be imported, and for `module:function@hash` where the
    source file is another one by now.
    """
    named = FUNCTION_NAME.fullmatch(name)
    if named is None:
        raise InputError.at(name, "this names no function", "write module:function, such as mine:reward")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)  # last, so that a file of the user's hides no module of a library
    # Else a module that was written since this process began may not be found.
    importlib.invalidate_caches()
    try:
        value: Any = importlib.import_module(named["module"])
    # Whatever the module does when it is imported. A script without a main guard may end by sys.exit(0), by which the
    # command would end well with nothing done.
    except (Exception, SystemExit) as error:
        problem = f"module {named['module']!r} cannot be imported ({type(error).__name__}: {first_line(error)})"
        raise InputError.at(name, problem, f"run where {named['module']}.py lies, or install the module") from error
    place = getattr(value, "__file__", None) or "which is built into Python"
    # A method of an object in the module may be named, too.
    for part in named["function"].split("."):
        value = getattr(value, part, None)
    if not callable(value):
        problem = f"module {named['module']!r} ({place}) has no function {named['function']!r}"
        raise InputError.at(name, problem, "write module:function, or give the file another name")
    if named["source"] and (now := _source_of(value)) != f"@{named['source']}":
        raise InputError.at(name, f"its source file has changed, and is {now} now", "restore the file, or begin anew")
    function: Function = value
    return function


def pinned(name: str) -> str:
    """`module:function` with the hash of the source file behind it; any other text as it is. Raises as `load_function`.

    The hash is of the file in which the function is written, also where `module` only imports it from another.
    """
    named = FUNCTION_NAME.fullmatch(name)
    if named is None or named["source"]:
        return name
    return name + _source_of(load_function(name))


def name_of(function: Function) -> str:
    """`module:function@hash` of a function, without the hash where its source is nowhere to be read.

    >>> import textwrap
    >>> name_of(textwrap.dedent).partition("@")[0]
    'textwrap:dedent'
    """
    inner = inspect.unwrap(function)
    kind = type(inner)
    module, name = (getattr(inner, part, None) or getattr(kind, part) for part in ("__module__", "__qualname__"))
    return f"{module}:{name}{_source_of(function)}"


def _source_of(function: Function) -> str:
    """`@` and the hash of a function's source file, or of its own lines where it was typed at a prompt."""
    inner: Any = inspect.unwrap(function)
    if not (inspect.isfunction(inner) or inspect.isclass(inner) or inspect.ismethod(inner)):
        inner = type(inner)  # an object that can be called
    try:
        file = Path(inspect.getsourcefile(inner) or "")
        source = file.read_bytes() if file.is_file() else inspect.getsource(inner).encode()
    except (OSError, TypeError):
        return ""
    return f"@{sha256(source).hexdigest()[:12]}"
