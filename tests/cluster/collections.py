"""A collection of six shards and the one index of the same documents and the same codec, for comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import plait
from encoders import WordEncoder
from plait.cluster.build import BuildConfig, build_locally, read_codec
from plait.cluster.hashing import even_starts, owner
from plait.cluster.manifest import read_manifest
from plait.encode.load import LazyEncoder
from plait.records import Document
from plait.storage.store import Store

N_DOCUMENTS, N_SHARDS = 420, 6
WORDS = [f"{first}{second}{third}" for first in "bdfgk" for second in "aeiou" for third in ("lor", "mant", "vex", "st")]


def make_documents(n_documents: int = N_DOCUMENTS) -> list[Document]:
    """Texts of very different lengths; every seventh document has three passages, every fifth a title."""
    documents, rng = [], np.random.default_rng(7)
    share = 1 / np.arange(1, len(WORDS) + 1)
    for number in range(n_documents):
        n_words = int(rng.integers(60, 140)) if number % 7 == 0 else int(rng.integers(4, 40))
        words = rng.choice(WORDS, n_words, p=share / share.sum()).tolist()
        title = f"{words[0]} of {number}" if number % 5 == 0 else ""
        metadata = {"year": 1990 + number % 30, "kind": ["note", "letter", "map"][number % 3]}
        documents.append(Document(f"doc-{number}", " ".join([*words, f"unique{number}"]), title, metadata))
    return documents


def make_encoder() -> WordEncoder:
    return WordEncoder(terms=300)


def config_for(encoder: WordEncoder, n_shards: int = N_SHARDS) -> BuildConfig:
    return BuildConfig.of(LazyEncoder(None, encoder, precision=None, n_threads=1), n_shards=n_shards, bits=4)


def make_pair(folder: Path) -> tuple[Path, Path]:
    """The folders of the collection and of the index. Equal scores are ordered by document number, so the index has the
    documents in the order of their shards."""
    encoder, documents = make_encoder(), make_documents()
    build_locally(documents, encoder, folder / "collection", config_for(encoder))
    (codec_file,) = (folder / "collection" / "build").glob("codec-*.npz")
    with plait.open(folder / "one", create=True, encoder=encoder) as index:
        starts = even_starts(N_SHARDS)
        documents.sort(key=lambda document: owner(starts, document.id))
        index.add(documents)
    with Store.open(folder / "one") as store, store.writer() as writer:
        writer.compact(codec=read_codec(codec_file))
        writer.save_calibration(read_manifest(folder / "collection").calibration)
    return folder / "collection", folder / "one"
