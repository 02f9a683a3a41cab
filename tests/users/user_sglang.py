# SPDX-License-Identifier: Apache-2.0
"""NCCL through SGLang's binding."""
import functools

from user_pynccl import Wrapped

User = functools.partial(Wrapped, "sglang.srt")
