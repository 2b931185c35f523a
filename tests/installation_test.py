#!/usr/bin/env python3
"""What is installed works: the command, its completions and pages, the libraries in a project of one's own, packages.

WEFT_BUILD is the build tree, built in full; WEFT_SOURCE_DIR the repository.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
ROOT = pathlib.Path(os.environ["WEFT_SOURCE_DIR"])
WEFT = BUILD / "bin/weft"


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def options_and_commands(words):
    """What `weft WORDS --help` lists."""
    text = run(WEFT, *words, "--help")
    listed = text.split("\nExamples:")[0].split("\nSubcommands:\n")
    words = [line.split()[0].split(",") for line in listed[0].splitlines() if re.match(r"^  \S*-", line)]
    options = {word for each in words for word in each if word.startswith("-")}
    commands = re.findall(r"^  (\w+)", listed[1], re.M) if len(listed) > 1 else []
    return options, commands


def every_command(words=()):
    options, commands = options_and_commands(words)
    yield words, options, commands
    for command in commands:
        yield from every_command((*words, command))


class Described(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = list(every_command())
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_walk_finds_the_commands(self):
        words = {command[0] for command in self.commands}
        self.assertLessEqual({(), ("plan",), ("show", "model"), ("doctor",), ("completion",)}, words)
        self.assertIn("--model", next(options for words, options, _ in self.commands if words == ("plan",)))

    def test_bash_completes_every_option_and_every_command(self):
        script = pathlib.Path(self.folder.name) / "weft.bash"
        script.write_text(run(WEFT, "completion", "bash"))
        # Asked in one shell: a line of what is offered for each question.
        asked, questions = [], f"source {script}\n"
        for words, options, commands in self.commands:
            for typed, expected in (("--", {each for each in options if each.startswith("--")}), ("-", options),
                                    *([("", set(commands))] if commands else [])):
                line = ["weft", *words, typed]
                asked.append((line, expected))
                questions += f"COMP_WORDS=({' '.join(map(repr, line))}); COMP_CWORD={len(line) - 1}; COMPREPLY=()\n"
                questions += '_weft; echo "${COMPREPLY[*]}"\n'
        answers = run("bash", "--norc", "-c", questions).splitlines()
        self.assertEqual(len(answers), len(asked))
        for (line, expected), answer in zip(asked, answers):
            self.assertLessEqual(expected, set(answer.split()), line)

    def test_bash_completes_values(self):
        script = pathlib.Path(self.folder.name) / "weft.bash"
        script.write_text(run(WEFT, "completion", "bash"))
        for line, expected in ((["weft", "plan", "--search", "enu"], "enumerate"),
                               (["weft", "simulate", "--model", "llama3-8"], "llama3-8b"),
                               (["weft", "show", "model", "--form", "d"], "dot"),
                               (["weft", "show", "model", "llama3-8"], "llama3-8b"),
                               (["weft", "show", "cluster", "dgx-h1"], "dgx-h100"),
                               (["weft", "completion", "z"], "zsh")):
            words = f"COMP_WORDS=({' '.join(line)}); COMP_CWORD={len(line) - 1}; _weft; echo ${{COMPREPLY[*]}}"
            self.assertIn(expected, run("bash", "--norc", "-c", f"source {script}; {words}").split())

    def test_zsh_knows_every_option_and_every_command(self):
        text = run(WEFT, "completion", "zsh")
        bodies = dict(re.findall(r"^(_weft\w*)\(\) \{\n(.*?)^\}", text, re.M | re.S))
        for words, options, commands in self.commands:
            body = bodies["_".join(["_weft", *words])]
            for option in options:
                self.assertIn(f"'{option}[", body)
            for command in commands:
                self.assertIn(f"'{command}:", body)
        if shutil.which("zsh"):
            script = pathlib.Path(self.folder.name) / "_weft"
            script.write_text(text)
            run("zsh", "-n", script)

    def test_every_command_has_a_page_with_every_option(self):
        folder = pathlib.Path(self.folder.name) / "man"
        run(WEFT, "man", "--out", folder)
        for words, options, commands in self.commands:
            text = (folder / ("-".join(["weft", *words]) + ".1")).read_text()
            self.assertEqual(text, run(WEFT, "man", *words))
            for option in options:
                self.assertIn(option.replace("-", "\\-"), text)
            for line in text.splitlines():
                self.assertFalse(re.match(r"^'|^\.(?!TH|SH|TP|B|BR|nf|fi)", line), line)
        if shutil.which("man") and shutil.which("groff"):
            shown = run("man", "--warnings", "-l", folder / "weft-plan.1", env={**os.environ, "MANWIDTH": "100"})
            self.assertIn("--global-batch", shown)

    def test_the_version_says_what_was_built_and_not_when(self):
        first, facts = run(WEFT, "--version").splitlines()
        version = re.search(r"project\(weft VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertEqual(first, f"weft {version}")
        self.assertRegex(facts, r"^commit (unknown|[0-9a-f]{7,40}(-dirty)?) · \w+ [\d.]+ · \w+ · weft-rank: (yes|no) · "
                                r"Python module: (yes|no)$")

    def test_doctor_finds_what_is_there(self):
        path = f"{BUILD}/none:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PYTHONPATH": str(BUILD / "lib/python")}
        found = json.loads(subprocess.run([WEFT, "doctor", "--json"], env=env, stdout=subprocess.PIPE).stdout)
        health = {part["part"]: part["health"] for part in found["parts"]}
        self.assertEqual((health["planning"], health["profiles"]), ("ok", "ok"))
        self.assertEqual(health["weft-rank"] == "ok", found["build"]["run"])
        self.assertEqual(found["ok"], "broken" not in health.values())
        for part in found["parts"]:
            self.assertTrue(part["found"] and part["enables"])

    def test_doctor_fails_where_a_part_is_there_and_does_not_work(self):
        folder = pathlib.Path(self.folder.name) / "bin"
        folder.mkdir()
        shutil.copy2(WEFT, folder)
        (folder / "weft-rank").write_text("#!/bin/sh\necho cannot open shared object file >&2; exit 127\n")
        (folder / "weft-rank").chmod(0o755)
        done = subprocess.run([folder / "weft", "doctor", "--json"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        part, = [each for each in json.loads(done.stdout)["parts"] if each["health"] == "broken"]
        self.assertIn("does not start: cannot open shared object file", part["found"])


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        first = pathlib.Path(cls.folder.name) / "first"
        run("cmake", "--install", BUILD, "--prefix", first, "--strip")
        # What is installed may be moved.
        cls.prefix = first.rename(pathlib.Path(cls.folder.name) / "second")
        cls.facts = json.loads(subprocess.run([WEFT, "doctor", "--json"], stdout=subprocess.PIPE).stdout)["build"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_command_works_from_anywhere(self):
        elsewhere = tempfile.mkdtemp(dir=self.folder.name)
        words = ["simulate", "--model", "gpt2-124m:layers=2", "--cluster", "dgx-a100:1", "--strategy", "dp=8",
                 "--global-batch", "8", "--seq", "64", "--json"]
        self.assertEqual(run(self.prefix / "bin/weft", *words, cwd=elsewhere), run(WEFT, *words))
        for file in ("share/man/man1/weft-plan.1", "share/bash-completion/completions/weft",
                     "share/zsh/vendor-completions/_weft", "share/doc/weft/copyright"):
            self.assertTrue((self.prefix / file).is_file(), file)

    def test_a_project_of_ones_own_builds_against_it(self):
        project = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))
        tutorial = (ROOT / "docs/tutorials/search.md").read_text()
        (project / "CMakeLists.txt").write_text(re.search(r"```cmake CMakeLists.txt\n(.*?)```", tutorial, re.S)[1])
        shutil.copy2(self.prefix / "share/doc/weft/examples/hill_climb.cpp", project / "main.cpp")
        run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", project / "build")
        self.assertIn("hill climbing", run(project / "build/mine"))

    def test_installed_headers_and_package_name_no_folder_of_the_build(self):
        for path in [*self.prefix.glob("lib/cmake/weft/*"), *self.prefix.glob("include/weft/**/*.h")]:
            text = path.read_text(errors="replace")
            self.assertNotIn(str(ROOT) + "/", text, path)
            self.assertNotIn(self.folder.name, text, path)

    def test_the_module_is_imported_from_there(self):
        if not self.facts["python"]:
            self.skipTest("built without Python")
        package, = self.prefix.glob("lib/python*/dist-packages")
        words = ("import sys, weft; assert weft.__file__.startswith(sys.argv[1]), weft.__file__; "
                 "print(weft.simulate('gpt2-124m:layers=2', 'dgx-a100:1', 'dp=8', global_batch=8, seq=64).feasible)")
        out = run(sys.executable, "-c", words, package, env={**os.environ, "PYTHONPATH": str(package)}, cwd="/")
        self.assertEqual(out.strip(), "True")

    def test_the_debian_package_has_all_of_it(self):
        if not (shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps") and shutil.which("cpack")):
            self.skipTest("no dpkg-dev")
        made = pathlib.Path(self.folder.name) / "deb"
        run("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", made, "-D", "CPACK_COMPONENTS_ALL=weft",
            "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
        package, = made.glob("weft_*.deb")
        facts = run("dpkg-deb", "-f", package, "Package", "Depends")
        for needed in ("libc6", "libfmt9", "libyaml-cpp0.7", "libtbb12", "libonnx1", "libsqlite3-0"):
            self.assertIn(needed, facts)
        root = pathlib.Path(self.folder.name) / "root"
        run("dpkg-deb", "-x", package, root)
        files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        self.assertLessEqual({"usr/bin/weft", "usr/share/man/man1/weft.1"}, files)
        self.assertEqual("usr/bin/weft-rank" in files, self.facts["run"])
        self.assertEqual(any(re.search(r"dist-packages/weft/_core.*\.so$", file) for file in files),
                         self.facts["python"])
        self.assertFalse([file for file in files if file.endswith((".a", ".h"))])
        self.assertIn("H100", run(root / "usr/bin/weft", "show", "cluster", "dgx-h100:1", cwd="/"))

    def test_pip_installs_the_module_without_a_network(self):
        if not self.facts["python"]:
            self.skipTest("built without Python")
        if not all(importlib.util.find_spec(name) for name in ("pip", "venv", "ensurepip", "setuptools", "wheel")):
            self.skipTest("no pip, venv, setuptools and wheel")
        source = pathlib.Path(self.folder.name) / "source"
        source.mkdir()
        for name in ("CMakeLists.txt", "pyproject.toml", "setup.py"):
            shutil.copy2(ROOT / name, source)
        shutil.copytree(ROOT / "python", source / "python")
        venv = pathlib.Path(self.folder.name) / "venv"
        run(sys.executable, "-m", "venv", "--system-site-packages", venv)
        run(venv / "bin/pip", "install", "--no-build-isolation", "--no-index", source,
            env={**os.environ, "WEFT_BUILD": str(BUILD)})
        words = "import weft; print(weft.__file__, weft.simulate('lenet', 'p100x4:1', 'dp=4', global_batch=64).feasible)"
        out = run(venv / "bin/python3", "-c", words, cwd="/")
        self.assertTrue(out.startswith(str(venv)) and out.rstrip().endswith("True"), out)


unittest.main(verbosity=2)
