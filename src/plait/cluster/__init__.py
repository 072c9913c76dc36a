"""Collections past one index: shards, a manifest that names them, searches over all of them, and Ray to build and serve
them. Each shard is an ordinary index. Ray is imported only by the functions that use it.

    from plait.cluster import open_cluster
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.cluster.searcher import ShardedAnswer as ShardedAnswer
    from plait.cluster.sharded_index import ShardedIndex as ShardedIndex
    from plait.cluster.sharded_index import open_cluster as open_cluster

_MODULES = {
    "open_cluster": "plait.cluster.sharded_index",
    "ShardedIndex": "plait.cluster.sharded_index",
    "ShardedAnswer": "plait.cluster.searcher",
}
__all__ = ["ShardedAnswer", "ShardedIndex", "open_cluster"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # imported when it is used: the planner needs none of it
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
