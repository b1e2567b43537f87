"""Rules of the repository that neither ruff, mypy nor import-linter checks."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = sorted((CHECKOUT / "django_graphile_worker").rglob("*.py"))
BENCHMARKS = sorted((CHECKOUT / "benchmarks").rglob("*.py"))
TESTS = sorted((CHECKOUT / "tests").rglob("*.py"))

LATE_IMPORT = "# Late import:"
MOST_LINES_OF_A_MODULE = 300
MOST_LINES_OF_A_FUNCTION = 45

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)
INDENTED_IMPORT = re.compile(r"^\s+(import|from)\s|;\s*(import|from)\s", re.MULTILINE)


@cache
def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _tree(path: Path) -> ast.Module:
    return _parsed(_source(path))


def _name(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def _called(node: ast.expr) -> str:
    """Return what a call names, as it is written, or nothing if that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_called(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _calls(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every call of a name in a file, with its line."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call):
            yield _called(node.func), node.lineno


def _where(paths: list[Path], *forbidden: str) -> set[str]:
    # A file that has the word of no name is not parsed, because that takes long.
    words = [name.rpartition(".")[2] for name in forbidden]
    suspects = [path for path in paths if any(word in _source(path) for word in words)]
    return {f"{_name(path)}:{line}" for path in suspects for name, line in _calls(path) if name in forbidden}


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function below a node with its qualified name, nested functions included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            if isinstance(child, FUNCTIONS):
                yield name, child
            yield from _functions(child, f"{name}.")
        elif not isinstance(child, ast.expr):
            # No expression contains a function with a name.
            yield from _functions(child, prefix)


def _imports_inside_functions(node: ast.AST, *, is_inside: bool = False) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if is_inside and isinstance(child, IMPORTS):
            yield child
        elif not isinstance(child, ast.expr):
            # No expression contains an import.
            yield from _imports_inside_functions(child, is_inside=is_inside or isinstance(child, FUNCTIONS))


def _comments(source: str) -> dict[int, str]:
    """Return the comment of each line that has one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def unexplained_late_imports(source: str) -> list[int]:
    """Return the lines of imports inside functions that no ``# Late import:`` comment explains."""
    if not INDENTED_IMPORT.search(source):
        return []
    imports = {node.lineno: node.end_lineno or node.lineno for node in _imports_inside_functions(_parsed(source))}
    covered = {line for first, last in imports.items() for line in range(first, last + 1)}
    if not imports:
        return []
    comments, lines = _comments(source), source.splitlines()

    def is_explained(first: int) -> bool:
        if comments.get(first, "").startswith(LATE_IMPORT) or comments.get(imports[first], "").startswith(LATE_IMPORT):
            return True
        line = first - 1
        # A block of consecutive late imports shares the comment above its first.
        while line in covered:
            line -= 1
        while lines[line - 1].lstrip().startswith("#"):
            if comments[line].startswith(LATE_IMPORT):
                return True
            line -= 1
        return False

    return [first for first in sorted(imports) if not is_explained(first)]


def _late_imports() -> set[str]:
    return {_name(path) for path in PACKAGE + BENCHMARKS if unexplained_late_imports(_source(path))}


def _long_modules() -> set[str]:
    paths = PACKAGE + BENCHMARKS
    return {_name(path) for path in paths if len(_source(path).splitlines()) > MOST_LINES_OF_A_MODULE}


def _long_functions() -> set[str]:
    return {
        f"{_name(path)}:{name}"
        for path in PACKAGE + BENCHMARKS
        for name, function in _functions(_tree(path))
        if (function.end_lineno or 0) - function.lineno >= MOST_LINES_OF_A_FUNCTION
    }


def _folders_without_docstring() -> set[str]:
    return {_name(path) for path in PACKAGE if path.name == "__init__.py" and not ast.get_docstring(_tree(path))}


def test_late_imports__say_what_they_save() -> None:
    assert _late_imports() == set()


def test_modules__have_at_most_300_lines() -> None:
    assert _long_modules() == set()


def test_functions__have_at_most_45_lines() -> None:
    assert _long_functions() == set()


def test_folders__say_what_they_hold() -> None:
    assert _folders_without_docstring() == set()


def test_unexplained_late_imports__finds_the_imports_inside_functions() -> None:
    source = '''
import top

def function():
    import unexplained

    # Late import: saves 3 ms of the start.
    import explained
    from package import (
        shares_the_comment,
    )

    import separated_by_a_blank_line
    # Something else.
    # Late import: explained in
    # more than one line.
    import after_a_longer_comment
    import at_the_end_of_its_line  # Late import: an optional package.

    class Inner:
        async def method(self):
            """# Late import: text is no comment."""
            import inside_a_method
'''
    unexplained = ["unexplained", "separated_by_a_blank_line", "inside_a_method"]
    lines = source.splitlines()
    assert [lines[line - 1].split()[-1] for line in unexplained_late_imports(source)] == unexplained


def test_tests__wait_for_conditions_and_never_sleep() -> None:
    places = _where(TESTS, "time.sleep", "sleep")
    assert {place.split(":")[0] for place in places} == {"tests/conftest.py"}, places


def test_modules__are_named_after_what_they_hold() -> None:
    vague = {"utils", "util", "helpers", "common", "misc", "base"}
    assert [path for path in PACKAGE if path.stem in vague] == []


def test_settings__are_read_in_one_place() -> None:
    readers = {
        path.name
        for path in PACKAGE
        if "GRAPHILE_WORKER" in _source(path)
        for node in ast.walk(_tree(path))
        if (isinstance(node, ast.Attribute) and node.attr == "GRAPHILE_WORKER")
        or (isinstance(node, ast.Constant) and node.value == "GRAPHILE_WORKER")
    }
    assert readers == {"conf.py"}
