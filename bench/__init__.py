"""Benchmarks of `jax_transpose` against `jnp.transpose`, a plain copy and other libraries.

Run from the clone; `python -m bench --help` lists the options:

    python -m bench --suite hard --width 2 --json now.json --plot now.png --compare old.json
    python -m bench random --seed 1 --count 200 --time-limit 500 --json random.json
    python -m bench random --seed 1 --count 200 --shard 2/3 --json second.json
    python -m bench report first.json second.json third.json --json all.json
    python -m bench small --sizes 64,512 --dtype f32 --json small.json
    python -m bench ladder --dtype f32,u8
    python -m bench cpu --suite ttc57 --max-bytes 64M --threads 1 --hptt /opt/hptt/libhptt.so
    python -m bench in_place --sizes 8192,8191 --dtype f32,u8 --compare old.json
    python -m bench --suite ttc57 --peers torch,cupy=/opt/site-packages,cutensor=/opt/cutensor
"""
