"""Work that waits for a module: parts of JAX that are slow to import, or never are."""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from collections.abc import Callable
from types import ModuleType

_waiting: dict[str, list[Callable[[ModuleType], None]]] = {}


def when_imported(name: str, call: Callable[[ModuleType], None]) -> None:
    """Calls `call` with the module `name`, once that is imported; now if it is."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(call)
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        call(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find, and no module that nobody waits for."""

    def find_spec(self, name, path, target=None):
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and not isinstance(finder, _Finder) else None
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads as `loader` does; the module never learns of this one."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):  # what else is asked of a loader, such as its source
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for call in _waiting[module.__name__]:
            try:
                call(module)
            except Exception as error:  # what the program imports works without us
                text = f"jax_transpose has no rules in {module.__name__}: {error!r}"
                warnings.warn(text, stacklevel=2)
