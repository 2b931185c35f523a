from ._core import (
    Cluster as Cluster,
    Error as Error,
    FoundPlan as FoundPlan,
    Launch as Launch,
    Model as Model,
    Progress as Progress,
    Search as Search,
    Simulation as Simulation,
    Strategy as Strategy,
    Timeline as Timeline,
    Validation as Validation,
    __version__ as __version__,
    build_info as build_info,
    clusters as clusters,
    devices as devices,
    models as models,
    plan as plan,
    read_launch as read_launch,
    simulate as simulate,
    simulate_file as simulate_file,
    validate as validate,
)
from .runs import Run as Run, RunStep as RunStep, read_run as read_run, run as run

__all__ = [
    "Cluster", "Error", "FoundPlan", "Launch", "Model", "Progress", "Run", "RunStep", "Search", "Simulation",
    "Strategy", "Timeline", "Validation", "build_info", "clusters", "devices", "models", "plan", "read_launch",
    "read_run", "run", "simulate", "simulate_file", "validate",
]
