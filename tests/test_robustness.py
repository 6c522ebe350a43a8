"""Import orders, processes, threads, garbage collection and machines without a GPU."""

import concurrent.futures
import functools
import gc
import importlib.util
import sys

import jax
import pytest
from dtypes import assert_same_bits, small_values
from scripts import run_python

import jax_transpose as jt

native = functools.partial(jt.transpose, kernel="native")

IMPORT_ORDERS = {
    "before the backend starts": """
        import jax_transpose as jt
        import jax
        assert (np.asarray(jt.transpose(X, kernel="native")) == X.T).all()
    """,
    "after the backend started": """
        import jax
        jax.block_until_ready(jax.numpy.ones(3) + 1)
        import jax_transpose as jt
        assert (np.asarray(jt.transpose(X, kernel="native")) == X.T).all()
    """,
    "inside a traced function": """
        import jax
        @jax.jit
        def f(x):
            import jax_transpose
            return jax_transpose.transpose(x, kernel="native") + 1
        assert (np.asarray(f(X)) == X.T + 1).all()
    """,
    "reloaded": """
        import importlib
        import jax
        import jax_transpose as jt
        old = jax.jit(lambda x: jt.transpose(x, kernel="native"))
        old(X)
        jt = importlib.reload(jt)
        importlib.reload(jt)
        new = jax.jit(lambda x: jt.transpose(x, kernel="native") * 2)
        assert (np.asarray(old(X)) == X.T).all()
        assert (np.asarray(new(X)) == X.T * 2).all()
        assert (np.asarray(jt.transpose(X[:3], kernel="native")) == X[:3].T).all()
    """,
    "from two threads at once": """
        import threading
        import jax
        start, good = threading.Barrier(2), []
        def work():
            start.wait()
            import jax_transpose as jt
            good.append((np.asarray(jt.transpose(X, kernel="native")) == X.T).all())
        threads = [threading.Thread(target=work) for _ in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert good == [True, True]
    """,
    "deleted while its executable lives": """
        import gc, sys, weakref
        import jax
        import jax_transpose as jt
        x = jax.numpy.asarray(X)
        f = jax.jit(lambda x: jt.transpose(x, kernel="native")).lower(x).compile()
        f(x)
        package = weakref.ref(jt)
        for name in [m for m in sys.modules if m.startswith("jax_transpose")]:
            del sys.modules[name]
        del jt
        for _ in range(20):
            gc.collect()
            assert (np.asarray(f(x)) == X.T).all()
        assert package() is None  # or nothing was deleted
        import jax_transpose as jt  # registers its handlers a second time
        assert (np.asarray(jt.transpose(x, kernel="native")) == X.T).all()
        assert (np.asarray(f(x)) == X.T).all()
    """,
}


@pytest.mark.parametrize("body", IMPORT_ORDERS.values(), ids=IMPORT_ORDERS)
def test_import_orders(body):
    run_python(body, JAX_PLATFORMS="cpu")


@pytest.mark.parametrize(
    "environment", [{"JAX_PLATFORMS": "cpu"}, {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": ""}]
)
def test_without_a_gpu_the_cpu_works_and_status_says_why(environment):
    out = run_python(
        """
        import jax
        import jax_transpose as jt
        assert (np.asarray(jt.transpose(X, kernel="native")) == X.T).all()
        assert not jt.status("cuda") and jt.status("cpu")
        print(jt.status("cuda").reason)
        plan = jt.explain((8192, 4096), platform="cuda")
        print(plan.implementation)
        """,
        **environment,
    )
    reason, implementation = out.strip().splitlines()
    built = importlib.util.find_spec("jax_transpose._cuda") is not None
    assert ("CUDA device" if built else "built without CUDA") in reason
    # Lowering for a GPU needs none.
    assert implementation == ("native" if built else "xla")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_forked_before_first_use():
    run_python(
        """
        import os, signal
        import jax_transpose as jt
        child = os.fork()
        if child == 0:
            ok = (np.asarray(jt.transpose(X, kernel="native")) == X.T).all()
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (np.asarray(jt.transpose(X, kernel="native")) == X.T).all()
        """,
        JAX_PLATFORMS="cpu",
    )


def test_spawned_workers(tmp_path):
    (tmp_path / "worker.py").write_text(
        "import numpy as np\n"
        "def work(x):\n"
        "    import jax_transpose as jt\n"
        "    return np.asarray(jt.transpose(x, kernel='native'))\n"
    )
    run_python(
        f"""
        import multiprocessing, sys
        sys.path.insert(0, {str(tmp_path)!r})
        import jax_transpose as jt
        import worker
        worker.work(X)  # the parent's threads run by now
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            got = pool.map(worker.work, [X, X[1:]])
        assert (got[0] == X.T).all() and (got[1] == X[1:].T).all()
        """,
        JAX_PLATFORMS="cpu",
    )


def test_sixteen_threads(platform_device):
    xs = [small_values((64, 48 + i), "float32") + i for i in range(4)]
    jitted = jax.jit(native)

    def work(i):
        host = xs[i % 4]
        x = platform_device.put(host)
        for f in (native, jitted) * 5:
            assert_same_bits(f(x), host.T)
        return True

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


@pytest.mark.parametrize("out", [False, True])
def test_nothing_is_kept_of_arrays_and_programs(platform_device, out):
    """Neither a call nor its error keeps an array alive; programs may go while results live."""
    host = small_values((64, 48), "float32")

    def once(i):
        x = platform_device.put(host + i)
        buffer = platform_device.put(jax.numpy.full((48, 64), 7.0)) if out else None
        results = [native(x, out=buffer), jax.jit(native)(x)]
        with pytest.raises(ValueError, match=r"out|axes"):
            native(x, **({"out": results[0].T} if out else {"axes": (0, 0)}))
        jax.clear_caches()
        gc.collect()
        for result in results:
            assert_same_bits(result, (host + i).T)

    once(0)
    gc.collect()
    before = len(jax.live_arrays(platform_device.device.platform))
    for i in range(1, 5):
        once(i)
    gc.collect()
    assert len(jax.live_arrays(platform_device.device.platform)) == before


@pytest.mark.gpu
def test_gpu_then_cpu_in_one_process(cuda, cpu):
    x = small_values((8, 4), "float32")
    f = jax.jit(native)
    for target in (cuda, cpu, cuda):
        for run in (native, f, jax.jit(lambda x: native(x) + 0)):
            out = run(target.put(x))
            assert out.devices() == {target.device}
            assert_same_bits(out, x.T)
