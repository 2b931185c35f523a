#!/usr/bin/env python3
"""Documents say what is there: commands print what is shown, files and names that are cited exist.

In the fenced blocks of README.md and docs/:
  $ weft ARGUMENTS   all that the command prints follows it, up to the next command or the end of the block; a line "…"
                     stands for paragraphs that are left out
  ```sh              a block of commands to try, each of which must succeed ("exit code 1" in the comment above: fail so).
                     They run in one folder that has the files of the repository, so a file that one writes others read.
docs/commands.md has an example of every command that --help lists.
In these and every README:
  `path/of/file.h`                exists, seen from the repository, from src/ or from the document; a bare name anywhere
  `path/of/file.h`: `Name`, `n`   the file has these words

tools/documents.py            writes what the commands print now into the documents
tools/documents.py --check    says where they differ, and what is cited and not there; a test
WEFT_BIN is the binary, build/release/bin/weft unless told.
"""
import difflib
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = pathlib.Path(os.environ.get("WEFT_BIN", ROOT / "build/release/bin/weft")).absolute()
SHOWING = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
DIFFERS = ": prints something else"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


class Commands:
    """Runs commands of one document, in a folder of their own."""

    def __init__(self, folder, known):
        self.folder, self.known = folder, known
        for entry in ROOT.iterdir():
            if entry.name not in ("build", ".git"):
                (pathlib.Path(folder) / entry.name).symlink_to(entry)

    def run(self, command):
        """What it prints and its exit code. A command that writes no file is run once for all documents."""
        if command in self.known:
            return self.known[command]
        path = f"{WEFT.parent}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env={**os.environ, "PATH": path}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        outcome = done.stdout.rstrip("\n"), done.returncode
        if not re.search(r">|--(out|db|trace|plot) ", command):
            self.known[command] = outcome
        return outcome


def paragraphs(text):
    return re.split(r"\n{2,}", text.strip("\n"))


def shows(shown, printed):
    """Whether paragraphs are shown as printed, but for those that a "…" leaves out."""
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(shows(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and shows(shown[1:], printed[1:])


def renewed(shown, printed):
    """What is shown, as it is printed now: each paragraph becomes the one whose first line is most like its own."""
    if "…" not in shown:
        return printed
    first = lambda paragraph: paragraph.split("\n")[0]
    likeness = lambda old: lambda new: difflib.SequenceMatcher(None, first(old), first(new), autojunk=False).ratio()
    return [each if each == "…" else max(printed, key=likeness(each)) for each in shown]


def renew_block(body, commands, faults):
    """The same block with what its commands print."""
    pieces = re.split(r"^(\$ weft .*(?:\\\n.*)*)\n", body, flags=re.M)
    for i in range(1, len(pieces), 2):
        printed, code = commands.run(pieces[i][2:])
        # A "…" may stand beside a paragraph without a blank line between them.
        shown = paragraphs(re.sub(r"^…$", "\n…\n", pieces[i + 1], flags=re.M))
        if code > 1:
            faults.append(f"{pieces[i]}: exit code {code}")
        if not shows(shown, paragraphs(printed)):
            faults.append(pieces[i] + DIFFERS)
            pieces[i + 1] = "\n\n".join(renewed(shown, paragraphs(printed))) + "\n" + "\n" * (i + 2 < len(pieces))
    return pieces[0] + "".join(f"{command}\n{output}" for command, output in zip(pieces[1::2], pieces[2::2]))


def try_block(body, commands, faults):
    comment = ""
    for line in body.replace("\\\n", " ").splitlines():
        if line.startswith("weft "):
            printed, code = commands.run(line)
            if code != ("exit code 1" in comment):
                faults.append(f"{line}: exit code {code}\n{printed[-500:]}")
        comment = line


def renew(path, known):
    """The document as the binary is now, and how it differs."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(folder, known)

        def block(match):
            if match[1] == "sh":
                try_block(match[2], commands, faults)
                return match[0]
            return f"```{match[1]}\n{renew_block(match[2], commands, faults)}```"

        text = FENCE.sub(block, path.read_text())
    return text, faults


def listed(path, known, words="weft"):
    """Commands that `--help` lists and the document has no example of."""
    with tempfile.TemporaryDirectory() as folder:
        text = Commands(folder, known).run(f"{words} --help")[0]
    below = text.split("\nSubcommands:\n")[1:]
    if not below:
        return [] if re.search(rf"^{words}\b", path.read_text(), re.M) else [f"no example of {words}"]
    return [fault for name in re.findall(r"^  (\w+)", below[0], re.M) for fault in listed(path, known, f"{words} {name}")]


def cited(path, files):
    """What a document cites that is not there."""
    text = path.read_text()
    prose = FENCE.sub("", text)
    names = {file.split("/")[-1] for file in files}
    faults = []

    def find(name):
        for base in ("", "src/", os.path.relpath(path.parent, ROOT) + "/"):
            pattern = re.escape(os.path.normpath(base + name)).replace(r"\*", "[^/]*")
            if found := [file for file in files if re.fullmatch(f"{pattern}(/.*)?", file)]:
                return found
        return [name] if "/" not in name and fnmatch.filter(names, name) else []

    for name in re.findall(r"`([\w./*-]+)`", prose):
        if re.search(r"\.(h|cpp|py|md)$", name) or re.match(r"(src|docs|tests|tools|bench|presets|examples|fuzz)/", name):
            if not find(name):
                faults.append(f"`{name}`: no such file")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        if not (path.parent / link).exists():
            faults.append(f"({link}): leads nowhere")
    for file, words in re.findall(r"`([\w./-]+)`: (`\w+`(?:,\s+`\w+`)*)", prose):
        for word in re.findall(r"\w+", words):
            if found := find(file):
                if not re.search(rf"\b{word}\b", (ROOT / found[0]).read_text()):
                    faults.append(f"`{file}`: has no `{word}`")
    return faults


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    if not os.access(WEFT, os.X_OK):
        print(f"{WEFT}: no binary; build it (make demo), or name it in WEFT_BIN")
        return 2
    check = sys.argv[1:] == ["--check"]
    known, failed = {}, False
    files = [os.path.relpath(file, ROOT) for entry in sorted(ROOT.iterdir()) if entry.name not in ("build", ".git")
             for file in ([entry] if entry.is_file() else sorted(each for each in entry.rglob("*") if each.is_file()))]
    for path in (ROOT / file for file in files if file.endswith(".md")):
        faults = cited(path, files)
        if path in SHOWING:
            text, different = renew(path, known)
            if path.name == "commands.md":
                faults += listed(path, known)
            faults += different if check else [each for each in different if not each.endswith(DIFFERS)]
            if not check and text != path.read_text():
                path.write_text(text)
                print(f"{path.relative_to(ROOT)}: written anew")
        for fault in faults:
            failed = True
            print(f"{path.relative_to(ROOT)}: {fault}")
    if failed and check:
        print("tools/documents.py writes what commands print into the documents")
    return failed


sys.exit(main())
