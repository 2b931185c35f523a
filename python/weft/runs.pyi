import os
from collections.abc import Callable
from typing import Any, Optional, Union

import numpy
import numpy.typing

from ._core import Cluster, Model, Strategy

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
def run(
    model: Union[str, os.PathLike[str], Model],
    strategy: Union[str, os.PathLike[str], Strategy],
    *,
    ranks: int,
    steps: int = 5,
    cluster: Union[str, os.PathLike[str], Cluster, None] = None,
    global_batch: Optional[int] = None,
    micro_batch: Optional[int] = None,
    seq: Optional[int] = None,
    dtype: Optional[str] = None,
    optimizer: Optional[str] = None,
    lr: Optional[float] = None,
    seed: Optional[int] = None,
    data: Union[str, os.PathLike[str], None] = None,
    save: Union[str, os.PathLike[str], None] = None,
    load: Union[str, os.PathLike[str], None] = None,
    threads: Union[int, str, None] = None,
    device: Optional[str] = None,
    check: bool = False,
    compare: bool = False,
    timing: bool = False,
    timeout: Optional[float] = None,
    progress: Optional[Callable[[RunStep], object]] = None,
) -> Optional[Run]: ...
