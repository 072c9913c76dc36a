"""`ShardedIndex`: a collection of shards on this machine, with the calls of an index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

from plait.checks import as_list, as_path, check_count, check_flag, check_type
from plait.cluster.fan_out import FanOut, LocalFanOut, ShardUnavailableError
from plait.cluster.hashing import N_HASHES, hash_id, owned, owner
from plait.cluster.manifest import LOCK, Manifest, ShardRecord, check_shards, publish, read_manifest
from plait.cluster.remote import local_copy, refuse_network_writes
from plait.cluster.searcher import ShardedAnswer, ShardedSearcher
from plait.cluster.shard import LocalShard
from plait.codec.train import FittedCodec
from plait.embeddings import Embeddings
from plait.encode.load import EXTERNAL, LazyEncoder, check_encoder
from plait.encode.protocol import Encoder
from plait.errors import (
    ConfigError,
    CorruptIndexError,
    DocumentError,
    EncoderMismatchError,
    QueryError,
    ReadOnlyError,
)
from plait.index import Index
from plait.ingest import AddReport, as_document
from plait.records import Document, Hit
from plait.searcher import SearchKeywords, SearchRequest
from plait.serve.protocol import UnavailableError
from plait.storage.backup import backup
from plait.storage.compaction import CompactionReport, fitted_codec
from plait.storage.fields import Facets, merge_facets
from plait.storage.info import info
from plait.storage.lock import WriterLock
from plait.storage.merge import live_parts
from plait.storage.store import Store

LOCK_SECONDS = 30.0  # that a writer waits for others


def open_cluster(
    path: str | Path,
    *,
    model: str | Path | None = None,
    encoder: Encoder | None = None,
    n_threads: int | None = None,
    read_only: bool = True,
) -> ShardedIndex:
    """Opens the collection at `path`, whose shards are on this machine.

    `model` and `encoder` are as in `plait.open`. Without `read_only` documents can be added and deleted: each goes to
    the shard that owns its id.
    """
    check_flag("read_only", read_only)
    folder = as_path("the path of a collection", path)
    manifest = read_manifest(folder)
    check_shards(folder, manifest)
    if encoder is not None:
        check_encoder(encoder)
    n_threads = n_threads or os.cpu_count() or 1
    source = LazyEncoder(model, encoder, precision=None, n_threads=n_threads)
    source.bind(folder, fingerprint=manifest.fingerprint, model=manifest.model)

    def reopen(manifest: Manifest) -> FanOut:
        return LocalFanOut(open_shards(folder, manifest), n_threads=n_threads)

    fan_out = reopen(manifest)
    return ShardedIndex(folder, manifest, source, fan_out, n_threads=n_threads, read_only=read_only, reopen=reopen)


class ShardedIndex:
    """Documents in several indexes, searched as one. Threads may share it."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        source: LazyEncoder,
        fan_out: FanOut,
        *,
        n_threads: int = 1,
        read_only: bool = True,
        partial: bool = False,
        reopen: Callable[[Manifest], FanOut] | None = None,
    ) -> None:
        """Not called by users: see `open_cluster`. With `partial`, searches go on without shards that do not answer.
        `reopen` opens the shards of a newer manifest."""
        self.folder, self.manifest, self._partial, self._reopen = folder, manifest, partial, reopen
        self._source, self._n_threads, self._read_only, self._fan_out = source, n_threads, read_only, fan_out
        self.searcher = self._make_searcher()

    def _make_searcher(self) -> ShardedSearcher:
        searcher = ShardedSearcher(
            self.manifest, self._fan_out, self._source, partial=self._partial, load_reranker=self._load_reranker
        )
        check_codebooks(self.manifest, {number: facts.codebook for number, facts in searcher.facts.items()})
        return searcher

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.searcher.n_documents

    def close(self) -> None:
        self._fan_out.close()

    def refresh(self) -> None:
        """Sees what other processes have written to the shards since."""
        self.searcher.refresh()

    # -- reading

    def search(self, query: str, k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[Hit]:
        """As `Index.search`."""
        return self.search_many([query], k, **keywords)[0]

    def search_many(self, queries: Sequence[str], k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[list[Hit]]:
        """As `Index.search_many`."""
        if isinstance(queries, str):
            raise QueryError("search_many takes a sequence of queries; use search for one")
        return self.answer(queries, SearchRequest(k=k, **keywords)).hits

    def answer(self, queries: Sequence[str], request: SearchRequest) -> ShardedAnswer:
        """The hits, and which shards did not answer."""
        return self.searcher.search(queries, request)

    def search_embeddings(
        self,
        embeddings: Embeddings,
        k: int = 10,
        *,
        texts: Sequence[str] | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[list[Hit]]:
        """As `Index.search_embeddings`."""
        return self.searcher.search_embeddings(embeddings, texts, SearchRequest(k=k, **keywords)).hits

    def similar(
        self,
        id: str | None = None,
        k: int = 10,
        *,
        text: str | None = None,
        embeddings: Embeddings | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """As `Index.similar`."""
        from plait.similar import given_query, similar_request, unknown_document

        if sum(given is not None for given in (id, text, embeddings)) != 1:
            raise ConfigError("similar takes an id, a text or embeddings: one of the three")
        request, kinds, reads_text = similar_request(SearchRequest(k=k, **keywords), self.manifest.spec)
        if id is None:
            query = given_query(self._source, request, kinds, reads_text=reads_text, text=text, embeddings=embeddings)
            return self.searcher.search_embeddings(query.embeddings, query.texts, request).hits[0]
        check_type("the id of a document", id, str, "text", DocumentError)
        answer = self.searcher.search_stored(id, kinds, request, reads_text=reads_text)
        if answer is None:
            raise unknown_document(id)
        return answer.hits[0]

    def facets(
        self, field: str, query: str | None = None, *, k: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> Facets:
        """As `Index.facets`."""
        check_count("k", k)
        return merge_facets(field, list(self.searcher.facets(field, query, SearchRequest(**keywords)).values()), k)

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """The documents of these ids; None for an id that the collection does not have."""
        ids = as_list("ids", ids, "ids")
        by_shard = owned(self.manifest.starts, ids)
        answers = self._ask("get", {shard: (wanted,) for shard, wanted in by_shard.items()})
        by_id = {id: one for shard, wanted in by_shard.items() for id, one in zip(wanted, answers[shard], strict=True)}
        return [by_id[id] for id in ids]

    def count(self, filter: str | None = None) -> int:
        """The number of documents, or of those that a filter accepts."""
        return sum(self._ask("count", dict.fromkeys(range(self._fan_out.n_shards), (filter,))).values())

    def _ask(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """The answers of all these shards."""
        answers = self._fan_out.call(method, arguments)
        if silent := sorted(set(arguments) - set(answers)):
            raise ShardUnavailableError(f"shards {', '.join(map(str, silent))} did not answer; try again")
        return answers

    # -- writing

    def add(self, documents: Sequence[Document | Mapping[str, Any]]) -> AddReport:
        """Adds documents or replaces them by id, each in the shard that owns its id. They are durable when this
        returns. If it fails, the shards that had committed keep their documents; adding the same again is safe."""
        checked = [as_document(document) for document in documents]
        total = AddReport()
        with self._writing():
            by_shard: dict[int, list[Document]] = {}
            for document in checked:
                by_shard.setdefault(owner(self.manifest.starts, document.id), []).append(document)
            for shard, mine in sorted(by_shard.items()):
                with self._open_shard(shard) as index:
                    report = index.add(mine)
                for name in ("added", "updated", "unchanged", "passages", "truncated", "not_encoded"):
                    setattr(total, name, getattr(total, name) + getattr(report, name))
                total.repeated += report.repeated
        self.refresh()
        return total

    def delete(self, ids: Sequence[str]) -> int:
        """Deletes documents by id; returns how many there were."""
        ids, n_deleted = as_list("ids", ids, "ids"), 0
        with self._writing():
            for shard, mine in sorted(owned(self.manifest.starts, ids).items()):
                with self._open_shard(shard) as index:
                    n_deleted += index.delete(mine)
        self.refresh()
        return n_deleted

    def compact(self) -> list[CompactionReport]:
        """Compacts one shard after the other, all with the codec of the collection, and publishes the new sizes."""
        with self._writing():
            codec, reports, records = self._codec(), [], []
            for number, record in enumerate(self.manifest.shards):
                path = self.manifest.shard_path(self.folder, number)
                reports.append(compact_shard(path, codec, n_threads=self._n_threads))
                records.append(measured(record, path))
            self.manifest = publish(self.folder, self.manifest.next_generation(shards=tuple(records)))
        self.refresh()
        return reports

    def split(self, number: int) -> Manifest:
        """Replaces a shard by two, each with half of its range of hashes, and publishes the new manifest.

        Readers of the old manifest go on with the old shard, whose folder stays. Writers wait.
        """
        if not 0 <= number < len(self.manifest.shards):
            raise ConfigError(f"there is no shard {number}; the collection has {len(self.manifest.shards)}")
        with self._writing():
            codec = self._codec()
            halves = split_shard(self.folder, self.manifest, number, codec, n_threads=self._n_threads)
            shards = [*self.manifest.shards[:number], *halves, *self.manifest.shards[number + 1 :]]
            self._adopt(publish(self.folder, self.manifest.next_generation(shards=tuple(shards))))
        return self.manifest

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Holds the lock of the collection, with its newest manifest: a document must not go to a shard that was
        split."""
        self._check_writable()
        refuse_network_writes(self.folder)
        lock = WriterLock(self.folder / LOCK, timeout=LOCK_SECONDS)
        try:
            newest = read_manifest(self.folder)
            if newest.generation != self.manifest.generation:
                self._adopt(newest)
            yield
        finally:
            lock.release()

    def _adopt(self, manifest: Manifest) -> None:
        """Changes over to another manifest."""
        if self._reopen is None:
            raise UnavailableError("the collection has a new generation, which is not served yet; try again")
        old = self._fan_out
        self.manifest, self._fan_out = manifest, self._reopen(manifest)
        self.searcher = self._make_searcher()
        old.close()

    def _codec(self) -> FittedCodec | None:
        """The codec that the manifest names, from a shard that has it."""
        if self.manifest.codebook is None:
            return None
        for number, facts in self.searcher.facts.items():
            if facts.codebook == self.manifest.codebook:
                path = self.manifest.shard_path(self.folder, number)
                with Store.open(path, read_only=True) as store, store.snapshot() as snapshot:
                    coded = [segment for segment in snapshot.segments if segment.residual_file is not None]
                    return fitted_codec(max(coded, key=lambda segment: segment.n_rows), keep_8bit=False)
        raise CorruptIndexError(f"no shard of {self.folder} has the codec that its manifest names; build it again")

    def _open_shard(self, number: int) -> Index:
        self._check_writable()
        if self.manifest.fingerprint == EXTERNAL:
            raise ConfigError("the collection was built from embeddings made elsewhere; it cannot encode documents")
        path = self.manifest.shard_path(self.folder, number)
        return Index(Store.open(path, write_timeout=LOCK_SECONDS), self._source, n_threads=self._n_threads)

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnlyError(f"{self.folder} was opened read-only; open it with read_only=False to write")

    def _load_reranker(self, given: Any) -> Any:
        from plait.rerank.reranker import Reranker, load_reranker

        if hasattr(given, "score") and hasattr(given, "fingerprint"):
            return Reranker(given)
        return load_reranker(None if given is True else str(given), n_threads=self._n_threads)


def compact_shard(path: Path, codec: FittedCodec | None, *, n_threads: int) -> CompactionReport:
    with Store.open(path, write_timeout=LOCK_SECONDS) as store, store.writer() as writer:
        return writer.compact(codec=codec, n_threads=n_threads)


def measured(record: ShardRecord, path: Path) -> ShardRecord:
    """The record with the counts that the shard has now."""
    with Store.open(path, read_only=True) as store:
        facts = info(store)
        with store.snapshot() as snapshot:
            n_vectors = sum(part.n_vectors for part in live_parts(snapshot.segments))
    return replace(
        record, n_documents=facts.documents, n_passages=facts.passages, n_vectors=n_vectors, n_bytes=facts.bytes
    )


def split_shard(
    folder: Path, manifest: Manifest, number: int, codec: FittedCodec | None, *, n_threads: int = 1
) -> list[ShardRecord]:
    """Two shards with the documents of one; nothing is encoded again. They are complete, but not published."""
    record = manifest.shards[number]
    end = [*manifest.starts, N_HASHES][number + 1]
    middle = (record.first_hash + end) // 2
    source = manifest.shard_path(folder, number)
    halves = []
    for first, stop in ((record.first_hash, middle), (middle, end)):
        path = source.with_name(f"split-{uuid4().hex[:12]}")
        try:
            backup(source, path, link=True)
            with Store.open(path, write_timeout=LOCK_SECONDS) as store:
                with store.snapshot() as snapshot:
                    ids = snapshot.fetch_ids(snapshot.matching("1", ()).tolist())
                with store.writer() as writer:
                    writer.delete([id for id in ids if not first <= hash_id(id) < stop])
                    writer.compact(codec=codec, n_threads=n_threads)
            uri = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
            halves.append(measured(replace(record, uri=uri, first_hash=first), path))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
    return halves


def open_shards(folder: Path, manifest: Manifest) -> list[LocalShard]:
    """The shards of a manifest; EncoderMismatchError if one is of another model."""
    shards: list[LocalShard] = []
    try:
        for number, _ in enumerate(manifest.shards):
            shards.append(LocalShard(local_copy(manifest.shard_path(folder, number))))
            check_shard_model(manifest, number, shards[-1])
    except BaseException:
        for shard in shards:
            shard.close()
        raise
    return shards


def check_shard_model(manifest: Manifest, number: int, shard: LocalShard) -> None:
    if shard.fingerprint != manifest.fingerprint:
        raise EncoderMismatchError(
            f"shard {number} ({shard.path}) was built with encoder {shard.fingerprint!r}, and the collection with "
            f"{manifest.fingerprint!r}; build the collection again"
        )


def check_codebooks(manifest: Manifest, codebooks: Mapping[int, str | None]) -> None:
    """Raises CorruptIndexError for a shard whose codec is not that of the collection. A shard without compressed
    vectors has none."""
    others = [number for number, digest in codebooks.items() if digest not in (None, manifest.codebook)]
    if others:
        raise CorruptIndexError(
            f"shard {others[0]} has another codec than the collection: it was compacted on its own, and its scores "
            f"cannot be compared with those of the others; build the collection again"
        )
