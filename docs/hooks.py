"""Hooks of the site (mkdocs.yml): the README is its home, pages from outside of docs/ are brought in, links follow.

Beside each page lies its Markdown, and llms.txt at the top lists them, for programs that read.
"""

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
        for name in ("AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "CITATION.cff")
    },
    **{page: f"recipes/{page.parent.name}.md" for page in (ROOT / "configs").glob("*/README.md")},
    **{file: f"recipes/{file.parent.name}-{file.name}" for file in (ROOT / "configs").glob("*/*.png")},
}
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
MARKDOWN: dict[str, str] = {}  # of each page, by its place, as it was built
# Pages that name many things and explain few: in the hits of the search they stand behind those that explain.
NAMING = re.compile(
    "(project|results|recipes|reference)/"
    r"|(comparison|configuration|glossary|index|laws|measurements|papers|recipes)\.md"
)
ROW = re.compile(r"^\| \[[^]]*\]\(([^)]+\.md)\) \| (.*) \|$")  # of the tables of docs/README.md
CODE = re.compile(r"(?ms)^ *```.*?^ *```|`[^`\n]*(?:\n[^`\n]+)?`")  # in a line, a line's end may stand in it


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

    if NAMING.match(page.file.src_uri):
        page.meta["search"] = {"boost": 0.1}
    code = [*CODE.findall(markdown), ""]
    followed = "".join(LINK.sub(follow, text) + block for text, block in zip(CODE.split(markdown), code, strict=True))
    MARKDOWN[page.file.src_uri] = followed
    return followed


def on_post_build(config: Any) -> None:
    site = Path(config["site_dir"])
    for name, text in MARKDOWN.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "llms.txt").write_text(list_pages(config["site_name"], config["site_description"], MARKDOWN["pages.md"]))


def list_pages(name: str, description: str, index: str) -> str:
    """llms.txt (llmstxt.org): the pages of the index with a line on each, under its headings."""
    lines = [f"# {name}", "", f"> {description}"]
    for line in index.splitlines():
        row = ROW.match(line)
        if row is not None:
            lines.append(f"- [{row[1].removesuffix('.md')}]({row[1]}): {row[2]}")
        elif line.startswith("## "):
            lines += ["", line, ""]
    return "\n".join(lines) + "\n"
