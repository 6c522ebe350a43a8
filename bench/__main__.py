"""`python -m bench`: verify and time `jax_transpose` on the device that is there."""

from __future__ import annotations

import sys
from pathlib import Path

from .options import parser

WRONG, SLOWER = 1, 3


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    _prefer_installed()
    command = parser()
    options = command.parse_intermixed_args(argv)
    if bool(options.files) != (options.command == "report"):
        command.error("FILES: for report, at least one; for other commands, none")
    try:
        import rich  # noqa: F401

        import jax_transpose  # noqa: F401
    except ImportError as error:
        print(f"bench: {error}. Install the package and the bench's needs first (README.md).")
        return WRONG
    from . import app

    try:
        return app.run(options)
    except ValueError as error:
        command.error(str(error))


def _prefer_installed() -> None:
    """Lets an installed jax_transpose win over the clone's sources, which hold no built modules."""
    clone = Path(__file__).resolve().parent.parent
    if any((clone / "jax_transpose").glob("_cpu*.so")):
        return
    here = [entry for entry in sys.path if Path(entry or ".").resolve() == clone]
    sys.path[:] = [entry for entry in sys.path if entry not in here] + here


if __name__ == "__main__":
    sys.exit(main())
