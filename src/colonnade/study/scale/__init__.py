"""What a study of many rows would take: constants of a machine, a model of the work, and how to measure the first."""

from colonnade.study.scale.constants import (
    BUILT_IN as BUILT_IN,
    MachineBenchmark as MachineBenchmark,
    MachineConstants as MachineConstants,
)
from colonnade.study.scale.cost_model import (
    RunTimeEstimate as RunTimeEstimate,
    WorkerFleet as WorkerFleet,
    estimate as estimate,
    why_not_parted as why_not_parted,
    work_of_study as work_of_study,
    work_of_task as work_of_task,
)
