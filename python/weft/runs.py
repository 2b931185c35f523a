"""Runs by real ranks: `weft run`, started here or before, and what it prints as plain objects."""
import json
import os
import pathlib

from ._core import Error, Model, Strategy

_LISTEN_S = 0.05  # how often progress is looked for
_GRACE_S = 10  # for an interrupted run to end its ranks


class RunStep:
    """A step of training: its number from 1, the loss, and its seconds if they were asked for (--timing)."""

    def __init__(self, step, loss, time_s=None):
        self.step, self.loss, self.time_s = step, loss, time_s

    def __repr__(self):
        return f"weft.RunStep({self.step}, {self.loss!r}, {self.time_s!r})"

    def __eq__(self, other):
        return isinstance(other, RunStep) and vars(self) == vars(other)

    __hash__ = None


class Run:
    """A run of a plan by its ranks."""

    def __init__(self, json):
        self.model = json["model"]
        self.strategy = json["strategy"]
        self.ranks = json["ranks"]
        self.numbers = json["numbers"]
        self.steps = [RunStep(**step) for step in json["steps"]]
        self.check = json.get("check")
        self.comparison = json.get("comparison")
        self.assumptions = json["assumptions"]
        self._json = json

    @property
    def losses(self):
        """A numpy array, a loss per step."""
        import numpy
        return numpy.array([step.loss for step in self.steps])

    @property
    def passed(self):
        """Whether every step was as on one device; None: it was not asked for (--check)."""
        return None if self.check is None else all(each["ok"] for each in self.check)

    def frame(self):
        """A pandas.DataFrame, a row per step."""
        from . import frames
        return frames.of_run(self)

    def to_dict(self):
        """What `weft run --json` has printed."""
        return self._json

    def __repr__(self):
        return f"<weft.Run of {self.model}, {self.strategy}: {len(self.steps)} steps on {self.ranks} ranks>"

    def _repr_html_(self):
        from . import html
        return html.of_run(self)


def read_run(path):
    """The result of a run, from a file with what `weft run --json` has printed."""
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            read = json.load(file)
    except OSError as problem:
        raise Error(f"{name}: {problem.strerror}") from None
    except ValueError as problem:
        raise Error(f"{name}: no JSON: {problem}") from None
    try:
        return Run(read)
    except (KeyError, TypeError) as problem:
        raise Error(f"{name}: not what weft run --json prints: {problem}") from None


def _command():
    """The weft command that belongs to this module: WEFT_BIN, the build tree's or the installed one beside it, or of PATH."""
    beside = pathlib.Path(__file__).resolve().parents
    import shutil
    places = [os.environ.get("WEFT_BIN", ""), *(above / "bin/weft" for above in beside[1:6])]
    for place in places:
        if place and os.access(place, os.X_OK) and not os.path.isdir(place):
            return str(place)
    found = shutil.which("weft")
    if found is None:
        raise Error("there is no weft command: install it, or name it by the variable WEFT_BIN")
    return found


def _words(model, strategy, cluster, options):
    """The options of the command line; a strategy that is a tree goes by a file of its own, which is returned too."""
    words = ["--model", model.spec if isinstance(model, Model) else os.fspath(model)]
    tree = None
    if isinstance(strategy, Strategy):
        tree, strategy = strategy.yaml, strategy.text
    if cluster is not None:
        words += ["--cluster", getattr(cluster, "spec", None) or os.fspath(cluster)]
    if isinstance(model, Model) and model.seq and options.get("seq") is None and model.kind == "language":
        options["seq"] = model.seq
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return words, strategy, tree


def _tell(progress, log, seen):
    """Tells of the steps that have been logged since; False: `progress` wants to stop."""
    try:
        lines = log.read_bytes().split(b"\n")[:-1]  # the last one may be half written
    except OSError:
        return seen, True
    for line in lines[seen:]:
        row = json.loads(line)
        if progress(RunStep(row["step"], row["loss"], row.get("time_s"))) is False:
            return len(lines), False
    return len(lines), True


def _stop(process):
    """As Ctrl-C at a terminal: weft run ends its ranks. What does not end is killed."""
    import signal
    import subprocess
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(model, strategy, *, ranks, steps=5, cluster=None, global_batch=None, micro_batch=None, seq=None, dtype=None,
        optimizer=None, lr=None, seed=None, data=None, save=None, load=None, threads=None, device=None, check=False,
        compare=False, timing=False, timeout=None, progress=None):
    """Train for real: every rank a process on this machine. Arguments are the options of `weft run`.

    `progress` is called with a weft.RunStep after every step; where it returns False the run is stopped and None is
    returned. Ctrl-C stops the run, and all its ranks, before KeyboardInterrupt is raised.
    """
    import subprocess  # not at the top: what only runs need would make `import weft` slower
    import tempfile
    if progress is not None and not callable(progress):
        raise TypeError(f"progress: a function of a weft.RunStep, not {type(progress).__name__}")
    options = dict(ranks=ranks, steps=steps, global_batch=global_batch, micro_batch=micro_batch, seq=seq, dtype=dtype,
                   optimizer=optimizer, lr=lr, seed=seed, data=data, save=save, load=load, threads=threads, device=device,
                   check=check, compare=compare, timing=timing, timeout=timeout)
    words, strategy, tree = _words(model, strategy, cluster, options)
    with tempfile.TemporaryDirectory(prefix="weft-run-") as folder:
        log = pathlib.Path(folder) / "log"
        if tree is not None:
            strategy = pathlib.Path(folder) / "strategy.yaml"
            strategy.write_text(tree, encoding="utf-8")
        words += ["--strategy", os.fspath(strategy), "--log", str(log), "--json"]
        # Files, not pipes: nobody has to read along. In a session of its own, so that Ctrl-C at the terminal comes here
        # first and the ranks are ended once.
        with open(pathlib.Path(folder) / "out", "w+b") as out, open(pathlib.Path(folder) / "errors", "w+b") as errors:
            process = subprocess.Popen([_command(), "run", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                       start_new_session=True)
            seen, wanted = 0, True
            try:
                while wanted:
                    try:
                        process.wait(_LISTEN_S)
                        break
                    except subprocess.TimeoutExpired:
                        if progress is not None:
                            seen, wanted = _tell(progress, log, seen)
                if wanted and progress is not None:
                    _tell(progress, log, seen)
            finally:
                _stop(process)
            if not wanted:
                return None
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()
            out.seek(0)
            printed = out.read()
    # 1: ranks differ from one device (--check), which the result says too.
    if process.returncode not in (0, 1) or not printed.strip():
        raise Error(said.removeprefix("weft: ") or f"weft run ended by signal {-process.returncode}")
    return Run(json.loads(printed))
