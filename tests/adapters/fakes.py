"""Small stand-ins for the models of other libraries: torch modules with the class names, call shapes and outputs of
sentence-transformers, PyLate and FlagEmbedding. A text is encoded from the weights of its tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn

WORDS = re.findall(
    r"\S+",
    "the heart pumps blood through body how do i install a package with pip bread is baked from flour water and yeast "
    "which organ library lends books ; shop sells them python s . , ? query : find passage",
)
DIM = 8


def tokenizer() -> Tokenizer:
    """A tokenizer of words, with [CLS] and [SEP] around a text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[Q]", "[D]"]
    vocabulary = {token: number for number, token in enumerate([*special, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


class FastTokenizer:
    """The part of a fast tokenizer of transformers that is read."""

    is_fast = True

    def __init__(self) -> None:
        self.backend_tokenizer = tokenizer()

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())


class Transformer(nn.Module):
    """The module with the weights: an embedding of each token."""

    __module__ = "sentence_transformers.base.modules.transformer"

    def __init__(self, seed: int = 0, *, max_seq_length: int = 16, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.tokenizer, self.max_seq_length = FastTokenizer(), max_seq_length
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(len(self.tokenizer), DIM)
        self.embedding.weight.data = torch.randn(len(self.tokenizer), DIM, generator=generator).to(dtype)
        self.query_length: int | None = None
        self.document_length: int | None = None

    def ids(self, text: str, length: int) -> list[int]:
        ids: list[int] = self.tokenizer.backend_tokenizer.encode(text).ids
        return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]

    def rows(self, ids: Sequence[int]) -> torch.Tensor:
        return self.embedding(torch.tensor(list(ids)))  # type: ignore[no-any-return]


class Pooling(nn.Module):
    """Mean over tokens, or the first one."""

    __module__ = "sentence_transformers.sentence_transformer.modules.pooling"

    def __init__(self, pooling_mode: str = "mean") -> None:
        super().__init__()
        self.pooling_mode = pooling_mode

    def pool(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.mean(0) if self.pooling_mode == "mean" else rows[0]


class SpladePooling(nn.Module):
    __module__ = "sentence_transformers.sparse_encoder.modules.splade_pooling"
    pooling_strategy = "max"


class BaseModel(nn.Sequential):
    """What the classes of sentence-transformers share."""

    encode: Any  # of each class, with its options

    def __init__(
        self, *modules: nn.Module, prompts: dict[str, str] | None = None, similarity: str | None = None
    ) -> None:
        super().__init__(*modules)
        self.prompts = {"query": "", "document": ""} if prompts is None else prompts
        self.default_prompt_name = None
        self.similarity_fn_name = similarity
        self.calls: list[tuple[str, int]] = []  # the method and the number of texts of each call

    @property
    def first(self) -> Transformer:
        module = self[0]
        assert isinstance(module, Transformer)
        return module

    @property
    def tokenizer(self) -> FastTokenizer:
        return self.first.tokenizer

    @property
    def max_seq_length(self) -> int:
        return self.first.max_seq_length

    def prompted(self, texts: Sequence[str], prompt_name: str | None) -> list[list[int]]:
        prompt = self.prompts[prompt_name] if prompt_name is not None else ""
        return [self.first.ids(prompt + text, self.first.max_seq_length) for text in texts]

    def encode_query(self, inputs: list[str], **options: Any) -> Any:
        self.calls.append(("encode_query", len(inputs)))
        return self.encode(inputs, prompt_name="query" if "query" in self.prompts else None, **options)

    def encode_document(self, inputs: list[str], **options: Any) -> Any:
        self.calls.append(("encode_document", len(inputs)))
        names = [name for name in ("document", "passage", "corpus") if name in self.prompts]
        return self.encode(inputs, prompt_name=names[0] if names else None, **options)


class SentenceTransformer(BaseModel):
    def encode(
        self,
        inputs: list[str],
        prompt_name: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
    ) -> Any:
        assert show_progress_bar is False
        assert convert_to_numpy
        assert 0 < len(inputs) <= batch_size
        pooling = self[1]
        assert isinstance(pooling, Pooling)
        pooled = [pooling.pool(self.first.rows(ids)) for ids in self.prompted(inputs, prompt_name)]
        return torch.stack(pooled).detach().float().numpy()


class OldSentenceTransformer:
    """A version without `encode_query`: prompts are chosen by name."""

    def __init__(self, model: SentenceTransformer) -> None:
        self.model, self.prompts, self.default_prompt_name = model, model.prompts, None
        self.prompt_names: list[str | None] = []

    def encode(self, inputs: list[str], prompt_name: str | None = None, **options: Any) -> Any:
        self.prompt_names.append(prompt_name)
        return self.model.encode(inputs, prompt_name=prompt_name, **options)

    def state_dict(self) -> Any:
        return self.model.state_dict()

    def modules(self) -> Any:
        return self.model.modules()


OldSentenceTransformer.__name__ = "SentenceTransformer"


class SparseEncoder(BaseModel):
    def encode(
        self,
        inputs: list[str],
        prompt_name: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_tensor: bool = True,
        convert_to_sparse_tensor: bool = True,
        save_to_cpu: bool = False,
    ) -> torch.Tensor:
        assert show_progress_bar is False
        assert 0 < len(inputs) <= batch_size
        assert convert_to_tensor
        assert convert_to_sparse_tensor
        assert save_to_cpu
        weights = self.first.embedding.weight.detach().float()
        out = torch.zeros(len(inputs), len(weights))
        for row, ids in enumerate(self.prompted(inputs, prompt_name)):
            for id in ids[1:-1]:
                out[row, id] = 1 + weights[id].abs().max()
        return out.to_sparse()


class MultiVectorEncoder(BaseModel):
    def encode(
        self,
        inputs: list[str],
        prompt_name: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = False,
        output_value: str | None = "token_embeddings",
        **options: Any,
    ) -> Any:
        assert not options
        assert not show_progress_bar
        assert 0 < len(inputs) <= batch_size
        comma = self.tokenizer.backend_tokenizer.token_to_id(",")
        outputs: list[Any] = []
        for ids in self.prompted(inputs, prompt_name):
            mask = torch.tensor([prompt_name == "query" or id != comma for id in ids])
            rows = nn.functional.normalize(self.first.rows(ids).detach().float(), dim=1)
            if output_value is None:
                outputs.append({"token_embeddings": rows, "input_ids": torch.tensor(ids), "attention_mask": mask})
            else:
                outputs.append(rows[mask].numpy() if convert_to_numpy else rows[mask])
        return outputs


class ColBERT(SentenceTransformer):
    """PyLate's model: a marker after [CLS], queries filled up with [MASK], documents without commas."""

    def __init__(self, seed: int = 0, *, query_length: int = 10, document_length: int = 16) -> None:
        super().__init__(Transformer(seed))
        self.query_prefix, self.document_prefix = "[Q] ", "[D] "
        self.query_length, self.document_length = query_length, document_length
        self.do_query_expansion, self.attend_to_expansion_tokens = True, False
        self.skiplist_words = [","]

    def encode(  # type: ignore[override]
        self,
        sentences: list[str],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        is_query: bool = True,
        output_value: str | None = "token_embeddings",
    ) -> Any:
        assert isinstance(sentences, list)
        assert 0 < len(sentences) <= batch_size
        assert convert_to_numpy
        assert not show_progress_bar
        length = self.query_length if is_query else self.document_length
        self.first.max_seq_length = length - 1  # PyLate does so in every call
        ids_of: Any = self.tokenizer.backend_tokenizer.token_to_id
        every: dict[str, list[Any]] = {"token_embeddings": [], "input_ids": [], "masks": []}
        for text in sentences:
            ids = self.first.ids(text, length - 1)
            ids = [ids[0], ids_of("[Q]" if is_query else "[D]"), *ids[1:]]
            mask = [is_query or id != ids_of(",") for id in ids]
            if is_query:
                mask += [True] * (length - len(ids))
                ids += [ids_of("[MASK]")] * (length - len(ids))
            rows = nn.functional.normalize(self.first.rows(ids).detach(), dim=1).numpy()
            every["token_embeddings"].append(rows if output_value is None else rows[np.array(mask)])
            every["input_ids"].append(np.array(ids))
            every["masks"].append(np.array(mask))
        return every if output_value is None else every["token_embeddings"]


class BGEM3FlagModel:
    """FlagEmbedding's model: three kinds at once, instructions, lexical weights by token ids as text."""

    def __init__(self, seed: int = 0, *, half: bool = False, query_instruction: str | None = None) -> None:
        self.model: nn.Module = Transformer(seed)
        if half:
            self.model.half()
        self.tokenizer = FastTokenizer()
        self.model_name_or_path = "/models/BAAI/bge-m3"
        self.query_max_length, self.passage_max_length = 12, 16
        self.query_instruction_for_retrieval, self.query_instruction_format = query_instruction, "{}{}"

    def encode_queries(self, queries: list[str], batch_size: int | None = None, **kinds: bool) -> dict[str, Any]:
        instruction = self.query_instruction_for_retrieval
        if instruction is not None:
            queries = [self.query_instruction_format.format(instruction, query) for query in queries]
        return self._encode(queries, self.query_max_length, batch_size, **kinds)

    def encode_corpus(self, corpus: list[str], batch_size: int | None = None, **kinds: bool) -> dict[str, Any]:
        return self._encode(corpus, self.passage_max_length, batch_size, **kinds)

    def _encode(
        self,
        texts: list[str],
        length: int,
        batch_size: int | None,
        return_dense: bool = True,
        return_sparse: bool = False,
        return_colbert_vecs: bool = False,
    ) -> dict[str, Any]:
        assert batch_size is not None
        assert batch_size > len(texts), "a progress bar is printed"
        transformer = self.model.float()  # as on a CPU
        assert isinstance(transformer, Transformer)
        ids = [transformer.ids(text, length) for text in texts]
        rows = [nn.functional.normalize(transformer.rows(item).detach(), dim=1).numpy() for item in ids]
        weights = [{str(id): np.float32(1 + id / 10) for id in item[1:-1]} for item in ids]
        return {
            "dense_vecs": np.stack([_unit(item.mean(0)) for item in rows]) if return_dense else None,
            "lexical_weights": weights if return_sparse else None,
            "colbert_vecs": [item[1:] for item in rows] if return_colbert_vecs else None,
        }


def _unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


class CrossEncoder(nn.Module):
    """The cross-encoder of sentence-transformers: the number of words that query and document share."""

    __module__ = "sentence_transformers.cross_encoder.model"

    def __init__(self, seed: int = 0, num_labels: int = 1) -> None:
        super().__init__()
        self.layer = nn.Linear(1, num_labels)
        self.layer.weight.data.fill_(1.0 + seed)
        self.layer.bias.data.zero_()
        self.num_labels, self.max_seq_length, self.activation_fn = num_labels, 32, nn.Identity()
        self.tokenizer = FastTokenizer()
        self.prompts: dict[str, str] = {}

    def predict(
        self,
        inputs: list[tuple[str, str]],
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
    ) -> Any:
        assert show_progress_bar is False
        assert 0 < len(inputs) <= batch_size
        assert convert_to_numpy
        shared = [[float(len({*query.lower().split()} & {*text.lower().split()}))] for query, text in inputs]
        return self.layer(torch.tensor(shared)).detach()[:, 0].numpy()


class FlagReranker:
    """FlagEmbedding's cross-encoder: a list of floats."""

    max_length, query_max_length, normalize = 512, None, False
    query_instruction_for_rerank = passage_instruction_for_rerank = None

    def __init__(self, seed: int = 0) -> None:
        self.model, self.tokenizer = CrossEncoder(seed), FastTokenizer()

    def compute_score(self, sentence_pairs: list[tuple[str, str]], batch_size: int = 256) -> list[float]:
        assert batch_size > len(sentence_pairs)
        scores: list[float] = self.model.predict(
            sentence_pairs, batch_size=len(sentence_pairs), show_progress_bar=False
        ).tolist()
        return scores


def dense_model(seed: int = 0, pooling: str = "mean", **options: Any) -> SentenceTransformer:
    return SentenceTransformer(Transformer(seed), Pooling(pooling), **options)


def sparse_model(seed: int = 0, **options: Any) -> SparseEncoder:
    return SparseEncoder(Transformer(seed), SpladePooling(), **options)


def multi_model(seed: int = 0, **options: Any) -> MultiVectorEncoder:
    return MultiVectorEncoder(Transformer(seed), **options)
