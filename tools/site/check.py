"""Checks a generated site: pages, links, anchors, search index, and that no page loads anything from elsewhere.

usage: check.py REPOSITORY SITE
"""

import html.parser
import json
import os
import pathlib
import re
import sys
import urllib.parse

repository, site = map(pathlib.Path, sys.argv[1:])
failures: list[str] = []
EXTERNAL = re.compile(r"^(https?:)?//")
# What the page generator leaves when it does not understand Markdown.
RAW = re.compile(r"\]\(|```|\*\*|^\|", re.M)


class Page(html.parser.HTMLParser):
    def __init__(self, path: pathlib.Path):
        super().__init__()
        self.links: list[str] = []  # what a reader can follow
        self.loads: list[str] = []  # what the browser fetches
        self.anchors: set[str] = set()
        self.code = 0
        self.raw: str | None = None
        self.diagram = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.code += tag in ("code", "pre", "script", "style", "textarea")
        self.diagram |= "mermaid" in found.get("class", "").split()
        self.anchors.update(found[name] for name in ("id", "name") if name in found)
        if "href" in found and (tag != "link" or found.get("rel") in ("prev", "next", "canonical")):
            self.links.append(found["href"])
        elif "href" in found:
            self.loads.append(found["href"])
        if "src" in found:
            self.loads.append(found["src"])
        self.loads += [part.split()[0] for part in found.get("srcset", "").split(",") if part.strip()]

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in ("code", "pre", "script", "style", "textarea")

    def handle_data(self, data: str) -> None:
        if not self.code and (raw := RAW.search(data)):
            self.raw = self.raw or data[max(0, raw.start() - 30) : raw.end() + 30]


expected = {f"docs/{path.stem}.html" for path in repository.glob("docs/*.md")}
expected = {path.replace("README.html", "index.html") for path in expected}
expected |= {"index.html", "CHANGELOG.html", "CONTRIBUTING.html", "SECURITY.html"}
failures += [f"no page {path}" for path in sorted(expected) if not (site / path).is_file()]

pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
links = 0
for path, page in pages.items():
    name = path.relative_to(site)
    if page.raw:
        failures.append(f"{name}: Markdown that was not converted: {page.raw!r}")
    if page.diagram and not any(load.endswith("javascripts/mermaid.js") for load in page.loads):
        failures.append(f"{name}: no script draws the diagram")
    for load in page.loads:
        if EXTERNAL.match(load):
            failures.append(f"{name}: loads {load}")
    for link in page.links + page.loads:
        url = urllib.parse.urlsplit(link)
        if url.scheme or EXTERNAL.match(link):
            continue
        links += 1
        target = path
        if url.path:
            target = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(url.path)))
        if not target.is_file():
            failures.append(f"{name}: broken link to {link}")
        elif url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].anchors:
            failures.append(f"{name}: {link} has no such heading")
for path in site.rglob("*.css"):
    failures += [f"{path.name}: loads {url}" for url in re.findall(r"(?:@import|url\()[\s\"']*((?:https?:)?//[^\s\"')]+)", path.read_text())]

# search.js is the same index for pages that are opened as files.
index = json.loads((site / "search.json").read_text())
found = {item["location"].partition("#")[0] for item in index["items"] if "latest_like_action" in item["text"]}
if not found:
    failures.append("search.json does not contain latest_like_action")
if "latest_like_action" not in (site / "search.js").read_text():
    failures.append("search.js does not contain latest_like_action")
unsearchable = expected - {item["location"].partition("#")[0] or "index.html" for item in index["items"]}
failures += [f"search.json lacks {path}" for path in sorted(unsearchable)]

for failure in failures:
    print(f"site: {failure}", file=sys.stderr)
if failures:
    sys.exit(1)
size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
print(f"site: {len(pages)} pages, {links} links, {size / 1e6:.1f} MB; latest_like_action is in {', '.join(sorted(found))}")
