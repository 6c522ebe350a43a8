"""Real data: a batch of images made from a photograph that a PyPI package ships."""

from __future__ import annotations

import functools

import jax
import numpy as np

SIZE = 512  # pixels a side


@functools.cache
def photograph() -> tuple[np.ndarray, str]:
    """A (512, 512, 3) uint8 photograph and where it came from.

    scikit-image's astronaut when it is installed, else matplotlib's sample portrait.
    """
    try:
        from skimage.data import astronaut

        image, source = astronaut(), "skimage.data.astronaut"
    except ImportError:
        import matplotlib.pyplot as plt
        from matplotlib.cbook import get_sample_data

        with get_sample_data("grace_hopper.jpg") as file:
            image, source = plt.imread(file, format="jpg"), "matplotlib grace_hopper.jpg"
    image = np.ascontiguousarray(image[:SIZE, :SIZE, :3])
    if image.shape != (SIZE, SIZE, 3) or image.dtype != np.uint8:
        raise ValueError(f"{source}: expected 512x512 RGB bytes, got {image.shape} {image.dtype}")
    return image, source


@functools.lru_cache(maxsize=2)
def batch(shape: tuple[int, ...]) -> np.ndarray:
    """A uint8 batch of `shape`, (N, 512, 512, 3) or (N, 3, 512, 512).

    Image i is the photograph shifted and mirrored by amounts that depend on i, so that no two are
    alike and an image in the wrong place is noticed.
    """
    image, _ = photograph()
    images = np.empty((shape[0], SIZE, SIZE, 3), np.uint8)
    for i in range(shape[0]):
        moved = np.roll(image, (37 * i % SIZE, 91 * i % SIZE), (0, 1))
        images[i] = moved[:, ::-1] if i % 2 else moved
    if shape[1:] == (SIZE, SIZE, 3):
        return images
    if shape[1:] == (3, SIZE, SIZE):
        return np.ascontiguousarray(np.moveaxis(images, 3, 1))
    raise ValueError(f"photo batch: no layout {shape}; (N, 512, 512, 3) or (N, 3, 512, 512)")


def round_trip(transpose, count: int = 4, kernel: str = "auto") -> str:
    """NHWC -> NCHW -> NHWC through `jit` and through `vmap`; returns a line saying what was seen.

    Raises AssertionError when a pixel moved: in NCHW the planes must be the photograph's own
    red, green and blue planes, and the way back must give the same pictures.
    """
    images = batch((count, SIZE, SIZE, 3))
    x = jax.numpy.asarray(images)
    move = functools.partial(transpose, kernel=kernel)

    there = jax.jit(lambda a: move(a, (0, 3, 1, 2)))
    back = jax.jit(lambda a: move(a, (0, 2, 3, 1)))
    there_v = jax.jit(jax.vmap(lambda a: move(a, (2, 0, 1))))
    back_v = jax.jit(jax.vmap(lambda a: move(a, (1, 2, 0))))
    for way, to, fro in (("jit", there, back), ("vmap", there_v, back_v)):
        planes = to(x)
        for channel, color in enumerate(("red", "green", "blue")):
            same = np.array_equal(np.asarray(planes[:, channel]), images[..., channel])
            assert same, f"photo, {way}: the {color} planes changed"
        assert np.array_equal(np.asarray(fro(planes)), images), f"photo, {way}: the way back"
    _, source = photograph()
    return f"{count} pictures ({source}) NHWC→NCHW→NHWC through jit and vmap: the same pictures"
