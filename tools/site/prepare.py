"""Copies the pages into a project directory, in the form that the site generator reads.

usage: prepare.py REPOSITORY PROJECT

The pages keep their paths, so links between them stay as they are. Links to other files of the repository become links
to repo_url (zensical.toml) or, without it, their text.
"""

import json
import os
import pathlib
import re
import shutil
import sys

import tomli

repository, project = map(pathlib.Path, sys.argv[1:])
source = project / "pages"
config = (pathlib.Path(__file__).parent / "zensical.toml").read_text()
repo_url = tomli.loads(config)["project"]["extra"]["repo_url"].rstrip("/")

about = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
docs = sorted(f"docs/{path.name}" for path in repository.glob("docs/*.md"))
pages = ["README.md", *about, *docs]

FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\[((?:`[^`]*`|[^\[\]`])*)\]\(([^)\s]+)\)")
# A list may follow a paragraph without a blank line on the repository's web page, but not here.
LIST = re.compile(r"^(?![-*] |\d+\. | |\||#|$)(.+)\n(?=[-*] |\d+\. )", re.M)


def convert(page: str, text: str) -> str:
    def link(match: re.Match[str]) -> str:
        path, _, _ = match[2].partition("#")
        if "://" in match[2] or not path:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if path in pages:
            return match[0]
        if path.startswith("..") or not (repository / path).exists():
            sys.exit(f"site: {page}: broken link to {match[2]}")
        return f"[{match[1]}]({repo_url}/{path})" if repo_url else match[1]

    def prose(part: str) -> str:
        return LIST.sub(r"\1\n\n", LINK.sub(link, part))

    result, end = "", 0
    for fence in FENCE.finditer(text):
        result += prose(text[end : fence.start()]) + fence[0]
        end = fence.end()
    result += prose(text[end:])
    if "```mermaid" in text:
        # Only pages with diagrams load the library, which has 2.5 MB.
        result += f'\n<script src="{"../" * page.count("/")}javascripts/mermaid.js"></script>\n'
    return result


def navigation() -> str:
    """The groups of docs/README.md, which must list every page."""
    nav: list[object] = [{"Home": "README.md"}, "docs/README.md"]
    listed = {"docs/README.md"}
    for group, body in re.findall(r"^\*\*(.+)\*\*\n((?:.+\n)+)", (repository / "docs/README.md").read_text(), re.M):
        paths = [(title, os.path.normpath(f"docs/{name}")) for title, name in LINK.findall(body)]
        entries = [{title: path} for title, path in paths if path not in about]
        nav.append({group: entries})
        listed.update(path for entry in entries for path in entry.values())
    if listed != set(docs):
        sys.exit(f"site: docs/README.md does not list {sorted(listed ^ set(docs))}")
    nav.append({"Project": about})
    return re.sub(r'("[^"]*"): ', r"\1 = ", json.dumps(nav))


for page in pages:
    target = source / page
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(convert(page, (repository / page).read_text()))
shutil.copytree(repository / "docs/images", source / "docs/images")
shutil.copy(pathlib.Path(__file__).parent / "site.css", source)
settings = f'[project]\ndocs_dir = "pages"\nsite_dir = "site"\nnav = {navigation()}\n'
(project / "zensical.toml").write_text(config.replace("[project]\n", settings, 1))
