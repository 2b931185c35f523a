import os
from typing import Any, Optional, Union

import numpy
import numpy.typing

class RunStep:
    step: int
    loss: float
    time_s: Optional[float]
    def __init__(self, step: int, loss: float, time_s: Optional[float] = None) -> None: ...
    def __eq__(self, other: object) -> bool: ...

class Run:
    model: str
    strategy: str
    ranks: int
    numbers: str
    steps: list[RunStep]
    check: Optional[list[dict[str, Any]]]
    comparison: Optional[dict[str, Any]]
    assumptions: list[str]
    def __init__(self, json: dict[str, Any]) -> None: ...
    @property
    def losses(self) -> numpy.typing.NDArray[numpy.float64]: ...
    @property
    def passed(self) -> Optional[bool]: ...
    def frame(self) -> Any: ...
    def to_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

def read_run(path: Union[str, os.PathLike[str]]) -> Run: ...
