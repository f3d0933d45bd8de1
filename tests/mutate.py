"""Mutation testing of one module: `python -m tests.mutate analyzers/intervals.py tests/test_intervals.py [more tests]`.

Each mutant changes one comparison, operator, number or truth value in a copy of the working tree; a mutant is killed
where a test fails, or does not end in time. Prints the survivors as diffs, and the rate.
"""

from __future__ import annotations

import ast
import copy
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}  # fmt: skip
SECONDS = 120


def mutants(tree: ast.Module) -> Iterator[tuple[int, ast.Module]]:
    """(line, changed tree) for every single change."""
    count = sum(1 for _ in ast.walk(tree))
    for place in range(count):
        for which in range(4):
            changed = copy.deepcopy(tree)
            node = next(node for number, node in enumerate(ast.walk(changed)) if number == place)
            if not _change(node, which):
                break
            yield getattr(node, "lineno", 0), changed


def _without_annotations(tree: ast.Module) -> ast.Module:
    """Functions' types change nothing when they are wrong."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return tree


def _change(node: ast.AST, which: int) -> bool:
    """Make the change number `which` of a node; False where there are no more."""
    if isinstance(node, ast.Compare) and which < len(node.ops) and type(node.ops[which]) in SWAPS:
        node.ops[which] = SWAPS[type(node.ops[which])]()  # type: ignore[call-overload]
        return True
    if which:
        return False
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        return True
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
        return True
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        node.value += 1
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        node.op = ast.UAdd() if isinstance(node.op, ast.Not) else ast.Not()
        return isinstance(node.op, ast.UAdd)
    return False


def main(module: str, *tests: str) -> int:
    """Run all mutants; 1 where fewer than nine in ten are killed."""
    root = Path(__file__).parents[1]
    original = (root / module).read_text()
    tree = _without_annotations(ast.parse(original))
    plain = ast.unparse(tree)
    killed, survivors = 0, []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name) / "work"
        shutil.copytree(root, work, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.nsys-rep"))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
        settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

        def passes() -> bool:
            try:
                ran = subprocess.run(command, cwd=work, capture_output=True, timeout=SECONDS, env=settings, check=False)
            except subprocess.TimeoutExpired:
                return False
            return ran.returncode == 0

        assert passes(), "the tests fail without any change"
        for line, mutant in mutants(tree):
            text = ast.unparse(mutant)
            if text == plain:
                continue
            (work / module).write_text(text)
            if passes():
                survivors.append(f"line {line}\n" + "\n".join(_difference(plain, text)))
                print(survivors[-1], flush=True)
            else:
                killed += 1
    total = killed + len(survivors)
    print(f"{module}: {killed} of {total} mutants killed ({killed / max(total, 1):.0%}).")
    return int(killed < 0.9 * total)


def _difference(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
