"""Operands, buffers and results in host memory, and code that runs on a device's host.

In processes of their own: what is wrong here used to abort.
"""

import jax
import pytest
from scripts import run_python

import jax_transpose as jt

pytestmark = pytest.mark.skipif(
    not hasattr(jax.typeof(0.0), "memory_space"), reason="this JAX does not type memory spaces"
)

SETUP = """
import functools, itertools
import jax, jax.numpy as jnp
import jax_transpose as jt
from jax.sharding import SingleDeviceSharding

device = jax.devices({platform!r})[0]
jax.config.update("jax_default_device", device)
KINDS = ("device", "pinned_host")
MEMORIES = {{kind: SingleDeviceSharding(device, memory_kind=kind) for kind in KINDS}}
SHAPE, AXES, RESULT = (3, 512, 2080), (2, 0, 1), (2080, 3, 512)
SQUARE = (5, 600, 600)
HOST = np.random.default_rng(0).random(SHAPE, np.float32)

def put(x, memory):
    return jax.device_put(x, MEMORIES[memory])

def where(x):
    return x.sharding.memory_kind

def attempt(f, *args):
    # The result's memory and bytes; or the message of an error that comes while tracing.
    try:
        lowered = f.lower(*args)
    except ValueError as error:
        return str(error)
    del lowered
    y = jax.block_until_ready(f(*args))
    return where(y), np.asarray(y).tobytes()
"""

OPERANDS = """
KERNELS, WANTED = ("auto", "native", "xla"), (None, *MEMORIES)
for memory, kernel, wanted in itertools.product(MEMORIES, KERNELS, WANTED):
    x = put(HOST, memory)
    options = {{}} if wanted is None else dict(out_shardings=MEMORIES[wanted])
    theirs = attempt(jax.jit(lambda x: jnp.transpose(x, AXES), **options), x)
    ours = attempt(jax.jit(lambda x: jt.transpose(x, AXES, kernel=kernel), **options), x)
    assert theirs[1] == HOST.transpose(AXES).tobytes()
    if kernel == "native" and {platform!r} != "cpu" and memory != "device":
        assert "kernel='native'" in ours and "host memory" in ours, ours
    else:
        assert ours == theirs, (memory, kernel, wanted, ours[0], theirs[0])
    if wanted is None and kernel != "native":
        y = jt.transpose(x, AXES, kernel=kernel)
        assert (where(y), np.asarray(y).tobytes()) == theirs
print("done")
"""

BUFFERS = """
KERNELS = ("auto", "native")
for memory, buffer, kernel, eager in itertools.product(MEMORIES, MEMORIES, KERNELS, (0, 1)):
    x, out = put(HOST, memory), put(np.zeros(RESULT, np.float32), buffer)
    call = lambda x, out: jt.transpose(x, AXES, out=out, kernel=kernel)
    if eager:
        try:
            y = jax.block_until_ready(call(x, out))
            got = where(y), np.asarray(y).tobytes()
        except ValueError as error:
            got = str(error)
    else:
        got = attempt(jax.jit(call, donate_argnums=1), x, out)
    case = memory, buffer, kernel, eager
    if memory != buffer:
        assert "out of shape" in got and "memory" in got, (case, got)
        assert not out.is_deleted()
    elif kernel == "native" and {platform!r} != "cpu" and memory != "device":
        assert "kernel='native'" in got and "host memory" in got, (case, got)
    else:
        assert got == (memory, HOST.transpose(AXES).tobytes()), (case, got[0])
print("done")
"""

IN_PLACE = """
host = np.random.default_rng(1).random(SQUARE, np.float32)
for memory, eager in itertools.product(MEMORIES, (0, 1)):
    call = lambda x: jt.transpose(x, (0, 2, 1), out=x)
    x = put(host, memory)
    y = call(x) if eager else jax.jit(call, donate_argnums=0)(x)
    assert where(y) == memory and np.asarray(y).tobytes() == host.transpose(0, 2, 1).tobytes()
print("done")
"""

TRANSFERS = """
# To the host and back within one program.
Space = jax.memory.Space
def program(transpose, x):
    kept = jax.device_put(transpose(x), Space.Host)
    return jnp.sum(jnp.sin(transpose(jax.device_put(kept, Space.Device))) * 2)
for kernel in ("auto", "native"):
    ours = functools.partial(jt.transpose, axes=AXES, kernel=kernel)
    theirs = functools.partial(jnp.transpose, axes=AXES)
    got, expected = (jax.jit(functools.partial(program, t))(HOST) for t in (ours, theirs))
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert where(got) == where(expected)
# Cotangents lie where the primals do.
x, weights = put(HOST, "pinned_host"), put(np.ones(RESULT, np.float32), "pinned_host")
for transpose in (jnp.transpose, jt.transpose):
    back = jax.jit(lambda x, w: jax.vjp(lambda x: transpose(x, AXES), x)[1](w)[0])(x, weights)
    assert where(back) == "pinned_host" and (np.asarray(back) == 1).all()
print("done")
"""

ON_HOST = """
from jax.experimental.compute_on import compute_on
Space = jax.memory.Space

def on_host(f, space):
    return compute_on(f, compute_type="device_host", out_memory_spaces=space)

square = np.random.default_rng(1).random((600, 600), np.float32)
x, xh = put(square, "device"), put(square, "pinned_host")
CALLS = {{
    "plain": lambda t, x: t(x),
    "jit": lambda t, x: jax.jit(t)(x),
    "twice": lambda t, x: t(t(x) * 2) + t(x),
    "scan": lambda t, x: jax.lax.fori_loop(0, 3, lambda _, x: t(x), x),
    "cond": lambda t, x: jax.lax.cond(x[0, 0] >= 0, t, lambda x: x, x),
    "vmap": lambda t, x: jax.vmap(t)(x.reshape(4, 150, 20, 30)).reshape(x.shape),
    "remat": lambda t, x: jax.checkpoint(t)(x),
}}
for name, call in CALLS.items():
    def program(transpose, x, call=call):
        return on_host(functools.partial(call, transpose), Space.Host)(x)
    expected = jax.jit(functools.partial(program, jnp.transpose))(xh)
    for kernel in ("auto", "xla"):
        ours = functools.partial(jt.transpose, kernel=kernel)
        got = jax.jit(functools.partial(program, ours))(xh)
        assert np.asarray(got).tobytes() == np.asarray(expected).tobytes(), name
        assert where(got) == where(expected), name
    if {platform!r} == "cpu":
        continue
    for kernel in ("native", "blocked"):
        ours = functools.partial(jt.transpose, kernel=kernel)
        error = attempt(jax.jit(functools.partial(program, ours)), xh)
        assert f"kernel={{kernel!r}}" in error and "device_host" in error, (name, error)

def with_buffer(x, out):
    return on_host(lambda x, out: jt.transpose(x, out=out), Space.Host)(x, out)
got = jax.jit(with_buffer, donate_argnums=1)(xh, put(square, "pinned_host"))
assert np.asarray(got).tobytes() == square.T.tobytes()
got = jax.jit(on_host(lambda x: jt.transpose(x, out=x), Space.Host), donate_argnums=0)(xh)
assert np.asarray(got).tobytes() == square.T.tobytes()
print("done")
"""

SCRIPTS = {
    "operands": OPERANDS,
    "buffers": BUFFERS,
    "in_place": IN_PLACE,
    "transfers": TRANSFERS,
    "on_host": ON_HOST,
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("platform", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_memories(platform, script):
    text = (SETUP + SCRIPTS[script]).format(platform=platform)
    assert run_python(text, timeout=300).strip().endswith("done")
    assert jt.status("cpu")
