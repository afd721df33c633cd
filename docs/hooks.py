"""Hooks of the site (mkdocs.yml): the README is its home, pages from outside of docs/ are brought in, links follow."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BROUGHT = {
    ROOT / "README.md": "index.md",
    ROOT / "docs" / "README.md": "pages.md",
    ROOT / "launch" / "locks" / "README.md": "project/locks.md",
    ROOT / "deploy" / "README.md": "project/deploy.md",
    **{
        ROOT / name: f"project/{name}"
        for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "CITATION.cff")
    },
    **{page: f"recipes/{page.parent.name}.md" for page in (ROOT / "configs").glob("*/README.md")},
    **{file: f"recipes/{file.parent.name}-{file.name}" for file in (ROOT / "configs").glob("*/*.png")},
}
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
CODE = re.compile(r"(?ms)^ *```.*?^ *```|`[^`\n]*`")


def on_files(files: Files, config: Any) -> Files:
    for source, place in BROUGHT.items():
        files.append(File.generated(config, place, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """The page with its links, which lead from file to file, leading from page to page of the site."""
    source, places = Path(page.file.abs_src_path), {file.abs_src_path: file.src_uri for file in files}

    def follow(link: re.Match[str]) -> str:
        place = places.get(os.path.normpath(source.parent / link[2]))
        return link[0] if place is None else link[1] + os.path.relpath(place, Path(page.file.src_uri).parent)

    code = [*CODE.findall(markdown), ""]
    return "".join(LINK.sub(follow, text) + block for text, block in zip(CODE.split(markdown), code, strict=True))
