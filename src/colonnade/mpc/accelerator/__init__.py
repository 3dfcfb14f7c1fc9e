"""Products of shares on a GPU, where there is one: the same bits as on the CPU."""

from colonnade.mpc.accelerator.device import Accelerator
from colonnade.mpc.accelerator.selection import SETTING, current_device, expect_work, find_device, read_setting

__all__ = ["SETTING", "Accelerator", "current_device", "expect_work", "find_device", "read_setting"]
