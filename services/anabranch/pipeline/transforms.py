"""Lookup of the user's functions, ``module:function``, next to the pipeline file or on the Python
path.

``check`` reads the source text only, so that a service that does not run a function does not run
its module either. ``import_transform`` imports it, for the service that runs it.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Stage

_REFERENCE = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)\Z")


def search_roots(module: str, pipeline_path: Path) -> list[Path]:
    """Return the folders in which ``module`` is searched before the Python path: the folder of the
    file, then the one above if the module is in the package that holds the file.
    """
    folder = pipeline_path.resolve().parent
    return [folder, folder.parent] if module.split(".", maxsplit=1)[0] == folder.name else [folder]


def import_roots(stages: Iterable[Stage], pipeline_path: Path) -> list[str]:
    """Return the folders in which the modules of ``stages`` are found, each once, for processes
    that do not know the pipeline file's folder.
    """
    found = {
        import_root(reference, stage.found_next_to(pipeline_path))
        for stage in stages
        for reference in (*stage.transform, *filter(None, (stage.shed.function,)))
    }
    return sorted(str(root) for root in found if root)


def import_root(reference: str, pipeline_path: Path) -> Path | None:
    """Return the folder that must be on the Python path of every process that runs ``reference``;
    None: the module is installed.
    """
    module = _split(reference)[0]
    first = module.split(".")[0]
    for root in search_roots(module, pipeline_path):
        if (root / f"{first}.py").is_file() or (root / first).is_dir():
            return root
    return None


def import_transform(reference: str, pipeline_path: Path) -> Callable[..., Any]:
    """Import and return the function ``module:function``; a module next to the pipeline file comes
    first.

    Inserts the folder into ``sys.path``, once: after the standard library, before installed
    packages.

    Raises:
        ConfigurationError: no such module or function, or the module fails while it is imported.
    """
    module_name, function_name = _split(reference)
    root = import_root(reference, pipeline_path)
    if root is not None and str(root) not in sys.path:
        sys.path.insert(_position_after_standard_library(), str(root))
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module can raise anything
        frame = _last_frame(error, pipeline_path.resolve().parent if root is None else root)
        where = "" if frame is None else f" at {frame.place}, {frame.text!r}"
        raise ConfigurationError(
            f"{pipeline_path}: transform {reference}: importing {module_name} failed{where}:"
            f" {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        found = f"{module_name} ({getattr(module, '__file__', 'built in')})"
        raise ConfigurationError(
            f"{pipeline_path}: transform {reference}: {found} has no function {function_name}"
        )
    return function  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class UserFrame:
    """Place in the user's code at which an error was raised, or passed through last."""

    place: str
    """Name of the file and number of the line."""
    text: str
    """The line's text."""


def raised_at(error: BaseException, function: Callable[..., Any]) -> UserFrame | None:
    """Return the last line of the user's code through which ``error`` came: code in the folder of
    the module of ``function``, or below. None: it came through none.
    """
    try:
        file = inspect.getfile(inspect.unwrap(function))
    except TypeError:  # a callable object, or a function of a compiled module
        return None
    return _last_frame(error, Path(file).resolve().parent)


def _last_frame(error: BaseException, folder: Path) -> UserFrame | None:
    """Return the last line of code in ``folder`` or below through which ``error`` came."""
    # The traceback of a syntax error ends at the import: the error itself names the line.
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames = [(error.filename, error.lineno)]
    else:
        walked = traceback.walk_tb(error.__traceback__)
        frames = [(frame.f_code.co_filename, line) for frame, line in walked]
    for file, line in reversed(frames):
        path = Path(file).resolve()
        if path.is_relative_to(folder) and "site-packages" not in path.relative_to(folder).parts:
            text = linecache.getline(file, line).strip()
            return UserFrame(f"{path.relative_to(folder)} line {line}", text)
    return None


def _position_after_standard_library() -> int:
    """Return the position in ``sys.path`` after the folders of the standard library."""
    standard = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
    own = {*standard, *(str(Path(folder, "lib-dynload")) for folder in standard)}
    return max(
        (place + 1 for place, folder in enumerate(sys.path) if folder in own), default=len(sys.path)
    )


def _shadowed_modules(root: Path) -> list[str]:
    """Return the modules in ``root`` that have names of standard-library modules. Spark's workers
    search ``root`` first and would import them instead.
    """
    return sorted(
        entry.name
        for entry in root.iterdir()
        if entry.name.partition(".")[0] in sys.stdlib_module_names
        and (
            entry.suffix in (".py", ".pyc", ".so")
            if entry.is_file()
            else (entry / "__init__.py").is_file()
        )
    )


def check(
    reference: str, pipeline_path: Path, inputs: Iterable[str], parameters: Iterable[str] | None
) -> str | None:
    """Return what is wrong with ``reference``, by its source text; None: nothing is.

    ``inputs`` are the keyword arguments that are data, ``parameters`` those that the pipeline file
    states. None for ``parameters`` checks only that the function exists: the arguments of a later
    function of a chain are not known here.
    """
    try:
        module_name, function_name = _split(reference)
    except ConfigurationError as error:
        return str(error)
    root = import_root(reference, pipeline_path)
    if root is not None and (hidden := _shadowed_modules(root)):
        return (
            f"{root / hidden[0]} has the name of a module of the standard library, which other"
            " modules would get instead; rename it"
        )
    source = _source_file(module_name, pipeline_path)
    if source is None:
        if module_name.endswith(".py"):
            return f"name the module without .py: {module_name.removesuffix('.py')}:{function_name}"
        file = f"{module_name.replace('.', '/')}.py"
        return (
            f"no module {module_name} next to the pipeline file or on the Python path; put {file}"
            " next to the pipeline file"
        )
    if source.suffix != ".py":
        return None  # a compiled module: it exists, and has no text to check
    try:
        tree = ast.parse(source.read_bytes(), str(source))
    except (SyntaxError, ValueError, OSError) as error:
        return f"module {module_name} cannot be read: {error}"
    return _definition_mistake(
        tree,
        module_name,
        function_name,
        list(inputs),
        None if parameters is None else list(parameters),
    )


def _definition_mistake(
    tree: ast.Module,
    module_name: str,
    function_name: str,
    inputs: list[str],
    parameters: list[str] | None,
) -> str | None:
    bound = dict(_bindings_of(tree.body))
    if function_name not in bound:
        if "*" in bound or "__getattr__" in bound:
            return None  # the name may come from there: only an import could tell
        guess = difflib.get_close_matches(function_name, bound, 1)
        return f"module {module_name} has no function {function_name}" + (
            f"; did you mean {guess[0]}?" if guess else ""
        )
    definition = bound[function_name]
    if isinstance(definition, ast.ClassDef):
        return f"{function_name} in {module_name} is a class; a function is wanted"
    if (
        parameters is None
        or not isinstance(definition, ast.FunctionDef)
        or definition.decorator_list
    ):
        return None
    return _signature_mistake(definition, inputs, parameters)


def _split(reference: str) -> tuple[str, str]:
    match = _REFERENCE.match(reference)
    if match is None:
        words = [word for word in re.split(r"[./\\:]+", reference) if word.isidentifier()]
        *modules, name = words or ["my_function"]
        module = ".".join(modules) or "stages"
        raise ConfigurationError(
            f"{reference!r} is not of the form module:function; write for example {module}:{name},"
            f" for the function {name} in {module.replace('.', '/')}.py"
        )
    return match["module"], match["function"]


def _source_file(module: str, pipeline_path: Path) -> Path | None:
    """Return the file of a module, found without running it or its packages."""
    search: list[str] | None = [
        str(root) for root in search_roots(module, pipeline_path)
    ] + sys.path
    origin: str | None = None
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        spec = PathFinder.find_spec(".".join(names[:depth]), search)
        if spec is None:
            return None
        search, origin = list(spec.submodule_search_locations or []), spec.origin
    return Path(origin) if origin else None


def _bindings_of(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that a module's top level binds, each with its statement; ``*`` stands for a
    star import.
    """
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield (alias.asname or alias.name.split(".")[0]), statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        yield node.id, statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _bindings_of(statement.body)
            yield from _bindings_of(getattr(statement, "orelse", []))
            yield from _bindings_of(getattr(statement, "finalbody", []))
            for handler in getattr(statement, "handlers", []):
                yield from _bindings_of(handler.body)


def _signature_mistake(
    definition: ast.FunctionDef, inputs: list[str], parameters: list[str]
) -> str | None:
    arguments = definition.args
    by_keyword = [argument.arg for argument in arguments.args + arguments.kwonlyargs]
    optional = {
        argument.arg
        for argument in arguments.args[
            len(arguments.args) - min(len(arguments.defaults), len(arguments.args)) :
        ]
    }
    optional |= {
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    }
    if len(arguments.defaults) < len(arguments.posonlyargs):
        return (
            f"{definition.name} has arguments by position only; every input and parameter is given"
            " by its name"
        )
    given = [*inputs, *parameters]
    if arguments.kwarg is None:
        for name in given:
            if name not in by_keyword:
                what = "input" if name in inputs else "parameter"
                return (
                    f"{definition.name} has no argument {name} for the {what} {name}; it has"
                    f" {', '.join(by_keyword) or 'none'}"
                )
    missing = [name for name in by_keyword if name not in given and name not in optional]
    if missing:
        return (
            f"{definition.name} needs an argument {missing[0]}, which is neither an input (reads)"
            " nor in parameters"
        )
    return None
