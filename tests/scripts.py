"""Run a piece of Python in a fresh process, and fail with its output if it fails."""

import os
import subprocess
import sys
import textwrap

#: What every script starts from: numpy, and an operand with its transpose.
PRELUDE = """
import numpy as np
X = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
"""


def run_python(body, timeout=120, **environment):
    """Run dedented `body` after PRELUDE with `environment` added; return its stdout.

    A hang is a failure: the process is killed after `timeout` seconds.
    """
    done = subprocess.run(
        # -P: the working directory may be a checkout without the compiled modules.
        [sys.executable, "-P", "-c", PRELUDE + textwrap.dedent(body)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
