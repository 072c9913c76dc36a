"""Call shapes of PyLate, RAGatouille and FlagEmbedding over plait: change an import, keep the rest of the code.

    from plait.compat.pylate import indexes, models, rank, retrieve  # was: from pylate import ...
    from plait.compat.ragatouille import RAGPretrainedModel  # was: from ragatouille import ...
    from plait.compat.flagembedding import BGEM3FlagModel, FlagModel, FlagReranker  # was: from FlagEmbedding import ...

For programs that exist. New code is shorter with `plait.open`. Models are plait models, by name or folder, and the
checkpoints that `plait convert` reads; no torch is imported to encode or to search. An argument that plait cannot
honour raises ConfigError if results depend on it, and gives a `CompatWarning` if they do not. The guides "Migrate"
list the differences.
"""

from __future__ import annotations

from plait.compat.arguments import CompatWarning

__all__ = ["CompatWarning"]
