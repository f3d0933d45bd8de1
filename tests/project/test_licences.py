"""What is installed with traceviz may go with Apache-2.0, and stands in CONTRIBUTING.md's table."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

tomllib = pytest.importorskip("tomllib")  # Python 3.11 or newer

ROOT = Path(__file__).parents[2]
GOES_WITH = re.compile(r"Apache|BSD|MIT|PSF|Python Software|ISC|HPND|Zlib|Unlicense|CC0|Public Domain", re.IGNORECASE)
DOES_NOT = re.compile(r"\b(?<!L)A?GPL|GNU (Affero )?General|SSPL|BUSL|Commons Clause|proprietary", re.IGNORECASE)


def required() -> list[str]:
    """All that an installation for analyzing brings, direct or not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [re.match(r"[\w.-]+", one)[0] for one in project["dependencies"]]  # type: ignore[index]
    found: dict[str, None] = {}
    while waiting:
        name = waiting.pop()
        if name.lower() in found:
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform or Python
        found[name.lower()] = None
        waiting += [re.match(r"[\w.-]+", one)[0] for one in needs if "extra ==" not in one]  # type: ignore[index]
    return sorted(found)


def licence(name: str) -> str:
    about = metadata.metadata(name)
    classifiers = [one for one in about.get_all("Classifier") or [] if one.startswith("License ::")]
    return " ".join([about.get("License-Expression") or "", (about.get("License") or "")[:200], *classifiers])


@pytest.mark.parametrize("name", required())
def test_a_dependencys_licence_goes_with_apache_2(name: str) -> None:
    assert GOES_WITH.search(licence(name)), f"{name}: {licence(name)!r}"
    assert not DOES_NOT.search(licence(name)), f"{name}: {licence(name)!r}"


def test_every_direct_dependency_stands_in_the_table_of_licences() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.match(r"[\w.-]+", one)[0] for group in groups for one in group}  # type: ignore[index]
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| licence | packages |")[2]
    assert not sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", table))


def test_the_development_lock_pins_what_the_ranges_allow() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "tests/constraints-development.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    pinned = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        one = Requirement(text)
        assert one.specifier.contains(pinned[one.name.lower()]), text
