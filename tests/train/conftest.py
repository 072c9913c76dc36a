"""One thread for torch: tensors here are tiny, and threads that wait for each other take most of the time."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
