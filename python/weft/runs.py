"""Results of runs: what `weft run --json` prints, as plain objects."""
import json
import os

from ._core import Error


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
