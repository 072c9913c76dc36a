"""Collections past one index: shards, a manifest that names them, searches over all of them, and Ray to build and serve
them. Each shard is an ordinary index. Ray is imported only by the functions that use it."""
