"""What a study of many rows would take: constants of a machine, a model of the work, and how to measure the first."""

from colonnade.study.scale.constants import BUILT_IN as BUILT_IN, Constants as Constants, Measured as Measured
from colonnade.study.scale.model import Estimate as Estimate, Fleet as Fleet, estimate as estimate
from colonnade.study.scale.workload import (
    why_not_parted as why_not_parted,
    work_of_study as work_of_study,
    work_of_task as work_of_task,
)
