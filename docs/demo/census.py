"""Counts a source tree: lines per language and Go package, the longest files, documented Go names.

Usage: census.py TREE REPORT    progress goes to stdout as it happens, the result to REPORT
"""
import os
import re
import sys
import time
from collections import Counter

LANGUAGES = {".go": "Go", ".py": "Python", ".proto": "Protocol Buffers", ".md": "Markdown", ".sh": "Shell"}
SKIPPED = {".git", "bin", "embedded"}
EXPORTED = re.compile(r"(?:func (?:\([^)]*\) )?|type |var |const )([A-Z]\w*)")


def language(path):
    name = os.path.basename(path)
    if name == "Makefile":
        return "Make"
    if os.path.basename(os.path.dirname(path)) == ".ci":
        return "Shell"
    return LANGUAGES.get(os.path.splitext(name)[1])


def sources(tree):
    """Yields the folders of the tree, each with its source files."""
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        paths = [os.path.join(folder, f) for f in sorted(files)]
        paths = [p for p in paths if language(p)]
        if paths:
            yield folder, paths


def documented(lines):
    """Returns how many exported top-level Go names there are, and how many follow a comment."""
    names = comments = 0
    for before, line in zip([""] + lines, lines):
        if EXPORTED.match(line):
            names += 1
            comments += before.startswith("//")
    return names, comments


def main(tree, report):
    start = time.monotonic()
    languages, packages, longest = Counter(), Counter(), []
    names = comments = 0
    for folder, paths in sources(tree):
        here = os.path.relpath(folder, tree)
        count = 0
        for path in paths:
            with open(path, encoding="utf-8", errors="replace") as f:
                lines = f.read().splitlines()
            kind = language(path)
            count += len(lines)
            languages[kind] += len(lines)
            if kind == "Go" and not path.endswith(".pb.go"):
                longest.append((len(lines), os.path.relpath(path, tree)))
                packages[here] += len(lines)
                if not path.endswith("_test.go"):
                    n, c = documented(lines)
                    names, comments = names + n, comments + c
        print(f"census: {here:<36} {len(paths):>3} files {count:>6} lines", flush=True)

    with open(report, "w") as out:
        for title, rows in (
            ("lines per language", languages.most_common()),
            ("largest Go packages", packages.most_common(8)),
            ("longest Go files", [(p, n) for n, p in sorted(longest, reverse=True)[:5]]),
        ):
            print(title, file=out)
            for name, lines in rows:
                print(f"  {lines:>7}  {name}", file=out)
        share = 100 * comments / names if names else 0
        print(f"exported Go names with a comment\n  {comments} of {names} ({share:.0f} %)", file=out)
    took = time.monotonic() - start
    print(f"census: {sum(languages.values())} lines in {took:.2f} s, report in {report}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
