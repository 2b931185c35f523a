#!/usr/bin/env python3
"""Documents say what is there: commands print what is shown, files and names that are cited exist.

In the fenced blocks of README.md and docs/:
  $ weft ARGUMENTS   all that the command prints follows it, up to the next command or the end of the block; a line "…"
                     stands for paragraphs that are left out
  ```sh              a block of commands to try, each of which must succeed ("exit code 1" in the comment above: fail so).
                     They run in one folder that has the files of the repository, so a file that one writes others read.
  ```yaml mine.yaml  a file of that folder, for the commands below it
  ```python          lines ">>> " and what Python prints for them; "..." stands for what is left out. All of a document
                     are one session, in the same folder, with the module `weft` that stands beside the binary.
Commands of `weft run` and `weft profile measure` and calls of weft.run need weft-rank, and Python the module: without
them they are skipped.
docs/commands.md has an example of every command that --help lists.
In these and every README:
  `path/of/file.h`                exists, seen from the repository, from src/ or from the document; a bare name anywhere
  `path/of/file.h`: `Name`, `n`   the file has these words

tools/documents.py            writes what the commands print now into the documents
tools/documents.py FILE...    into these
tools/documents.py --check    says where they differ, and what is cited and not there; a test
WEFT_BIN is the binary, build/release/bin/weft unless told.
"""
import difflib
import doctest
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = pathlib.Path(os.environ.get("WEFT_BIN", ROOT / "build/release/bin/weft")).absolute()
MODULE = WEFT.parent.parent / "lib/python"
HAS_RANK = os.access(WEFT.parent / "weft-rank", os.X_OK)
SHOWING = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/tutorials/*.md"))]
DIFFERS = ": prints something else"
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
# Executes examples given as JSON, as at a prompt, and gives what each prints.
SESSION = """
import contextlib, io, json, sys, traceback
space, printed = {}, []
for source in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source, "<document>", "single"), space)
        except Exception as problem:
            print("Traceback (most recent call last):\\n    ...", *traceback.format_exception_only(type(problem), problem), sep="\\n", end="")
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


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


def can_run(command):
    return HAS_RANK or not re.search(r"\bweft (run|profile measure)\b(?!.*--bundle)", command, re.S)


def python_session(path, folder):
    """The documents' examples, each with what it prints now; None without the module."""
    examples = [example for match in FENCE.finditer(path.read_text()) if match[1] == "python"
                for example in doctest.DocTestParser().get_examples(match[3])]
    if not examples or not any((MODULE / "weft").glob("_core*.so")):
        return None
    done = subprocess.run([sys.executable, "-c", SESSION], cwd=folder, input=json.dumps([each.source for each in examples]),
                          env={**os.environ, "PYTHONPATH": str(MODULE)}, text=True, stdout=subprocess.PIPE)
    return iter(json.loads(done.stdout))


def renew_python(body, session, faults):
    """The same block with what its examples print."""
    if session is None:
        return body
    text = ""
    for piece in doctest.DocTestParser().parse(body):
        if isinstance(piece, str):
            text += piece
            continue
        first, *more = piece.source.rstrip("\n").split("\n")
        source = "".join([f">>> {first}\n", *(f"... {line}\n" for line in more)])
        printed = next(session)
        skipped = "weft.run(" in piece.source and not HAS_RANK
        if not skipped and not doctest.OutputChecker().check_output(piece.want, printed, doctest.ELLIPSIS):
            faults.append(source.rstrip() + DIFFERS)
            text += source + printed
        else:
            text += source + piece.want
    return text


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
        if not can_run(pieces[i]):
            continue
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
        if line.startswith("weft ") and can_run(line):
            printed, code = commands.run(line)
            if code != ("exit code 1" in comment):
                faults.append(f"{line}: exit code {code}\n{printed[-500:]}")
        comment = line


def renew(path, known):
    """The document as the binary is now, and how it differs."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(folder, known)
        session = []  # begun at the first Python block, when commands above it have written their files

        def block(match):
            language, name, body = match.groups()
            head = f"```{language}" + (f" {name}" if name else "") + "\n"
            if name:
                file = pathlib.Path(folder) / name
                file.unlink(missing_ok=True)  # a link to the repository's
                file.write_text(body)
            elif language == "sh":
                try_block(body, commands, faults)
            elif language == "python":
                if not session:
                    session.append(python_session(path, folder))
                return f"{head}{renew_python(body, session[0], faults)}```"
            else:
                return f"{head}{renew_block(body, commands, faults)}```"
            return match[0]

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
    asked = [pathlib.Path(word).absolute() for word in sys.argv[1:] if word != "--check"]
    if any(path not in SHOWING for path in asked):
        print(__doc__)
        return 0 if sys.argv[1:] in (["--help"], ["-h"]) else 2
    if not os.access(WEFT, os.X_OK):
        print(f"{WEFT}: no binary; build it (make demo), or name it in WEFT_BIN")
        return 2
    check = "--check" in sys.argv[1:]
    known, failed = {}, False
    files = [os.path.relpath(file, ROOT) for entry in sorted(ROOT.iterdir()) if entry.name not in ("build", ".git")
             for file in ([entry] if entry.is_file() else sorted(each for each in entry.rglob("*") if each.is_file()))]
    for path in asked or [ROOT / file for file in files if file.endswith(".md")]:
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
