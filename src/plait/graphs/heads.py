"""The heads of a model as arrays: what `plait.graphs.build` adds above a backbone. None of these classes computes
anything; a head that a model does not have is None."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.graphs.adapter import AdapterArrays
from plait.graphs.builder import DenseLayer, Floats, Layer, Linear, Norm

# Names of sentence-transformers. "mcls" is plait's: the mean of the states at every [CLS]; with one [CLS] it is "cls".
MCLS = "mcls"
POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", MCLS)

__all__ = ["DenseLayer", "Layer", "Linear", "Norm"]


@dataclass(frozen=True, slots=True, eq=False)
class DenseHead:
    """One vector for each text, the output `dense`: pooling, layers, truncation, normalisation, in this order."""

    poolings: tuple[str, ...] = ("mean",)  # of `POOLINGS`; the vectors of several are concatenated
    layers: tuple[Layer, ...] = ()
    dim: int | None = None  # only the first dimensions are kept (Matryoshka)
    normalize: bool = True  # to length 1


@dataclass(frozen=True, slots=True, eq=False)
class MultiHead:
    """One vector of length 1 for each token, the output `multi`."""

    layers: tuple[Layer, ...]
    dim: int | None = None  # only the first dimensions are kept (Matryoshka)


@dataclass(frozen=True, slots=True, eq=False)
class SparseTokens:
    """A weight for each token (BGE-M3, and the models that plait trains): relu of a linear map of its state."""

    linear: Linear  # out is 1
    is_kept: NDArray[np.bool_]  # (vocabulary,): False for ids whose weight is always 0
    idf: Floats | None = None  # (vocabulary,): the IDF times its gain, added to the weight
    up: Linear | None = None  # to hidden units; their GELU times `down` is added
    down: Linear | None = None
    term_ids: NDArray[np.int64] | None = None  # (vocabulary,): the term of each id; None: each id is a term


@dataclass(frozen=True, slots=True, eq=False)
class MlmHead:
    """States to logits over the vocabulary: a dense layer, its activation, a norm, and the decoder."""

    decoder: Linear  # (hidden, vocabulary)
    transform: Linear | None = None
    activation: str = ""
    norm: Norm | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SparseVocabulary:
    """A weight for each term of the vocabulary (SPLADE): the pooled activations of the logits of all tokens."""

    head: MlmHead
    activation: str = "log1p_relu"  # log(1 + relu(x)); or "relu"; or "log1p_log1p_relu", log(1 + log(1 + relu(x)))
    pooling: str = "max"  # over tokens; or "sum"
    is_kept: NDArray[np.bool_] | None = None  # (vocabulary,): False for terms whose weight is always 0
    # (vocabulary,): the weight of each token in a query, without the backbone: the output `sparse_query`
    query_weights: Floats | None = None


SparseHead = SparseTokens | SparseVocabulary


@dataclass(frozen=True, slots=True, eq=False)
class MixerArrays:
    """A fixed number of vectors for every document (ConstBERT), the output `fixed`."""

    weight: Floats  # (positions, vectors), or (vectors * dim, positions * dim) if `flat`
    n_vectors: int
    n_positions: int
    flat: bool
    zero_pads: bool
    bias: Floats | None = None  # (vectors,), or (vectors * dim,) if `flat`; added before normalisation
    mixes_rows: bool = False  # mixes projected rows; else states are mixed and then projected. `flat` mixes rows always


@dataclass(frozen=True, slots=True, eq=False)
class ScoreHead:
    """One number for each text or pair, the output `score` (n,): the head of a cross-encoder, without the activation
    that its card names. The last layer gives one number."""

    pooling: str  # of `POOLINGS`
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """All heads of a model."""

    dense: DenseHead | None = None
    sparse: SparseHead | None = None
    multi: MultiHead | None = None
    mixture: MixerArrays | None = None
    token_adapter: AdapterArrays | None = None
    score: ScoreHead | None = None
