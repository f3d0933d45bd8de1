"""What mkdocs does with links that leave docs/: the README becomes the home page, and notebooks are brought along.

The pages are written for GitHub and an editor, where `../notebooks/x.ipynb` is a file. On the site a link to a notebook
leads to a copy of it. One to any other file leads to `repo_url`, where mkdocs.yml has one; else it is text.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
HOME = "index.md"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the home page and the notebooks."""
    files.append(File.generated(config, HOME, content=(ROOT / "README.md").read_text(encoding="utf-8")))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they are on the site."""
    uri = page.file.src_uri
    return LINK.sub(lambda link: _site_link(link, "README.md" if uri == HOME else f"docs/{uri}", uri, config), markdown)


def _site_link(link: re.Match[str], source: str, uri: str, config: Any) -> str:
    picture, text, target, anchor = link.groups(default="")
    path = normpath(join(source, "..", target))
    if path == "README.md":
        there = HOME
    elif path.startswith("docs/"):
        there = path.removeprefix("docs/")
    elif path.startswith("notebooks/"):
        there = path
    else:
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/HEAD/{path}{anchor})" if config.repo_url else text
    return f"{picture}[{text}]({relpath(there, join(uri, '..') if '/' in uri else '.')}{anchor})"
