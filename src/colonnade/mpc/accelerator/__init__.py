"""Products of shares on a GPU, where there is one: the same bits as on the CPU."""

from colonnade.mpc.accelerator.choice import SETTING, chosen, expect, find, found
from colonnade.mpc.accelerator.device import Accelerator

__all__ = ["SETTING", "Accelerator", "chosen", "expect", "find", "found"]
