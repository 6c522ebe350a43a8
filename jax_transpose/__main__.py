"""`python -m jax_transpose`: what is installed, what can run, and which kernel would."""

import jax
import jaxlib

import jax_transpose
from jax_transpose import _ffi
from jax_transpose._decide import PLATFORMS


def main() -> None:
    print(
        f"jax_transpose {jax_transpose.__version__}, jax {jax.__version__}, "
        f"jaxlib {jaxlib.__version__}"
    )
    built = _ffi._cpu.ffi_api_version
    print(f"XLA FFI API: built against {built[0]}.{built[1]}")
    for platform in PLATFORMS:
        state = jax_transpose.status(platform)
        print(f"\n{platform}: {'available' if state else 'not available'} ({state.reason})")
        print(f"  kernels: {', '.join(jax_transpose.kernels(platform))}")
        for shape, axes in (((4096, 4096), (1, 0)), ((8, 2048, 16, 64), (0, 2, 1, 3))):
            print(jax_transpose.explain(shape, axes, platform=platform))


if __name__ == "__main__":
    main()
