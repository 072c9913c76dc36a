"""The runtime of one process: searches, reads, writes, jobs, reloads."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from pathlib import Path

import pytest

import plait
from plait.deadline import Deadline
from plait.errors import FilterError, SearchTimeoutError
from plait.serve.protocol import (
    AddDocuments,
    AddFile,
    Compact,
    CreateOptions,
    DeleteIds,
    DeleteWhere,
    IdempotencyConflictError,
    IndexExistsError,
    JobStatus,
    NotAllowedError,
    UnavailableError,
    UnknownIndexError,
    UnknownJobError,
    UnknownModelError,
    UpdateMetadata,
    WriteAnswer,
)
from plait.serve.runtime import catalog
from plait.serve.runtime.hosts import IndexHost
from plait.serve.runtime.runtime import ServeRuntime
from plait.storage.connection import CATALOGUE
from serve.runtime.samples import config_of, eventually, make_index, run


async def ids(runtime: ServeRuntime, query: str = "how are vectors mixed", name: str = "fabrics") -> list[str]:
    answer = await runtime.host(name).search([query], 10, {}, deadline=Deadline(30))
    return [hit.id for hit in answer.hits[0]]


async def done(runtime: ServeRuntime, id: str) -> JobStatus:
    async def has_ended() -> bool:
        return (await runtime.job(id)).state in ("done", "failed")

    await eventually(has_ended, 60)
    return await runtime.job(id)


NEW = AddDocuments([{"id": "new", "text": "A shuttle carries the weft."}])


def test_a_search_gives_the_hits_of_the_library(fabrics: Path) -> None:
    with plait.open(fabrics, read_only=True) as index:
        expected = index.search("how are vectors mixed", 3, explain=True)

    async def body(runtime: ServeRuntime) -> None:
        answer = await runtime.host("fabrics").search(
            ["how are vectors mixed"], 3, {"explain": True}, deadline=Deadline(30)
        )
        (hits,) = answer.hits
        assert [hit.id for hit in hits] == [hit.id for hit in expected]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)
        assert hits[0].explanation is not None
        assert answer.trace is not None
        assert "encode" in [stage.name for stage in answer.trace.stages]
        assert answer.commit is not None

    run(config_of(fabrics), body)


def test_searches_at_the_same_time_are_encoded_in_batches(fabrics: Path) -> None:
    queries = [f"how are vectors mixed {number}" for number in range(24)]

    async def body(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        alone = [(await host.search([query], 3, {}, deadline=Deadline(60))).hits[0] for query in queries]
        together = await asyncio.gather(*(host.search([query], 3, {}, deadline=Deadline(60)) for query in queries))
        for before, answer in zip(alone, together, strict=True):
            assert [hit.id for hit in answer.hits[0]] == [hit.id for hit in before]
            scores = [hit.score for hit in answer.hits[0]]
            assert scores == pytest.approx([hit.score for hit in before], abs=1e-4)
        text = runtime.metrics_text()[0].decode()
        sums = {
            line.split("{")[0]: float(line.split()[-1]) for line in text.splitlines() if "plait_batch_texts_" in line
        }
        assert sums["plait_batch_texts_sum"] == 48
        assert sums["plait_batch_texts_count"] < 48  # without batches there would be one call for each query

    run(config_of(fabrics), body)


def test_a_reranker_is_used_by_its_name_and_a_folder_is_refused(fabrics: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        answer = await host.search(["vectors"], 2, {"rerank": True}, deadline=Deadline(60))
        assert "rerank" in answer.hits[0][0].scores
        with pytest.raises(UnknownModelError, match="no reranker"):
            await host.search(["vectors"], 2, {"rerank": str(fabrics)}, deadline=Deadline(60))
        scored = await runtime.rerank(None, "vectors", ["Vectors are mixed.", "A needle."], deadline=Deadline(60))
        assert scored.scores[0] > scored.scores[1]

    run(config_of(fabrics), body)


def test_texts_are_encoded_as_the_model_does(fabrics: Path) -> None:
    texts = [f"a text about cloth, number {number}" for number in range(70)]
    expected = plait.load_model(n_threads=1).encode_documents(texts)

    async def body(runtime: ServeRuntime) -> None:
        answer = await runtime.encode(None, texts, kind="document", deadline=Deadline(60))
        assert answer.model == "plait-small"
        made = answer.embeddings
        assert made.dense is not None
        assert made.multi is not None
        assert expected.dense is not None
        assert expected.multi is not None
        assert made.dense == pytest.approx(expected.dense, abs=2e-2)
        assert made.multi.offsets.tolist() == expected.multi.offsets.tolist()
        with pytest.raises(UnknownModelError, match="no encoder"):
            await runtime.encode("/etc", texts, kind="query", deadline=Deadline(60))

    run(config_of(fabrics), body)


def test_errors_of_a_search_reach_the_caller(fabrics: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        with pytest.raises(FilterError):
            await host.search(["cloth"], 2, {"filter": "year >="}, deadline=Deadline(30))
        with pytest.raises(SearchTimeoutError):
            await host.search(["cloth"], 2, {}, deadline=Deadline(1e-9))
        with pytest.raises(UnknownIndexError):
            runtime.host("../fabrics")
        answer = await host.search(["cloth"], 2, {"filter": "yeer = 2020"}, deadline=Deadline(30))
        assert "yeer" in answer.warnings[0]

    run(config_of(fabrics), body)


def test_writes_are_visible_when_they_are_answered(fabrics: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        added = await host.write(NEW, idempotency_key=None, owner="")
        assert isinstance(added, WriteAnswer)
        assert added.result["added"] == 1
        assert "new" in await ids(runtime, "shuttle")
        changed = await host.write(UpdateMetadata({"new": {"year": 1999}}), idempotency_key=None, owner="")
        assert changed == WriteAnswer(result={"changed": 1})
        assert await host.read(lambda index: index.count("year = 1999"), deadline=Deadline(30)) == 1
        deleted = await host.write(DeleteWhere("year = 1999"), idempotency_key=None, owner="")
        assert deleted == WriteAnswer(result={"deleted": 1})
        assert await host.write(DeleteIds(["loom"]), idempotency_key=None, owner="") == WriteAnswer(
            result={"deleted": 1}
        )
        assert not {"new", "loom"} & set(await ids(runtime))

    run(config_of(fabrics), body)


def test_an_idempotency_key_gives_the_first_answer_also_after_a_restart(fabrics: Path) -> None:
    async def first(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        one, two = await asyncio.gather(
            host.write(NEW, idempotency_key="k", owner="a", digest="d"),
            host.write(NEW, idempotency_key="k", owner="a", digest="d"),
        )
        assert isinstance(one, WriteAnswer)
        assert isinstance(two, WriteAnswer)
        assert one.result == two.result
        assert [one.replayed, two.replayed] == [False, True]
        with pytest.raises(IdempotencyConflictError):
            await host.write(NEW, idempotency_key="k", owner="a", digest="other")

    async def second(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        again = await host.write(NEW, idempotency_key="k", owner="a", digest="d")
        assert isinstance(again, WriteAnswer)
        assert again.replayed
        assert again.result["added"] == 1
        other = await host.write(NEW, idempotency_key="k", owner="b", digest="d")
        assert isinstance(other, WriteAnswer)
        assert not other.replayed

    run(config_of(fabrics), first)
    run(config_of(fabrics), second)


def test_a_long_write_is_a_job(fabrics: Path, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_text("".join(json.dumps({"id": f"n{n}", "text": f"thread {n}"}) + "\n" for n in range(30)))

    second = Path(shutil.copy(upload, tmp_path / "second"))

    async def body(runtime: ServeRuntime) -> None:
        host = runtime.host("fabrics")
        job = await host.write(AddFile(upload, 30), idempotency_key="k", owner="a", digest="d")
        assert isinstance(job, JobStatus)
        assert job.state == "queued"
        again = await host.write(AddFile(second, 30), idempotency_key="k", owner="a", digest="d")
        assert isinstance(again, JobStatus)
        assert again.id == job.id
        ended = await done(runtime, job.id)
        assert (ended.state, ended.documents, ended.total, ended.owner) == ("done", 30, 30, "a")
        assert ended.result is not None
        assert ended.result["added"] == 30
        assert not upload.exists()
        assert not second.exists()
        compact = await host.write(Compact(), idempotency_key=None, owner="", background=True)
        assert isinstance(compact, JobStatus)
        assert (await done(runtime, compact.id)).state == "done"
        bad = await host.write(AddDocuments([{"id": "x"}]), idempotency_key=None, owner="", background=True)
        assert isinstance(bad, JobStatus)
        failed = await done(runtime, bad.id)
        assert failed.state == "failed"
        assert failed.error is not None
        assert failed.error.startswith("invalid_document: ")
        with pytest.raises(UnknownJobError):
            await runtime.job("nothing")

    run(config_of(fabrics, sync_documents=20), body)


def test_commits_of_other_processes_become_visible(fabrics: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        def write() -> None:
            with plait.open(fabrics, n_threads=1) as index:
                index.add([{"id": "outside", "text": "A bobbin holds thread."}])

        await asyncio.to_thread(write)

        async def is_visible() -> bool:
            return "outside" in await ids(runtime, "bobbin")

        await eventually(is_visible, 5)

    run(config_of(fabrics), body)


def test_a_folder_that_is_removed_and_replaced_is_opened_again(fabrics: Path, tmp_path: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        assert "loom" in await ids(runtime)
        fabrics.rename(tmp_path / "away")
        await eventually(lambda: not runtime.host("fabrics").is_open)
        with pytest.raises(UnavailableError, match="folder is gone"):
            await ids(runtime)
        assert not runtime.ready()
        with plait.open(tmp_path / "other", create=True, n_threads=1) as index:
            index.add([{"id": "other", "text": "Another index."}])
        shutil.move(tmp_path / "other", fabrics)

        async def is_open() -> bool:
            try:
                return await ids(runtime) == ["other"]
            except UnavailableError:
                return False

        await eventually(is_open)

    run(config_of(fabrics), body)


def test_a_replaced_index_fails_no_request(fabrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = make_index(tmp_path / "twin")
    open_now = IndexHost._open_now

    def open_slowly(self: IndexHost) -> tuple[plait.Index, int]:  # so that many requests come meanwhile
        time.sleep(0.5)
        return open_now(self)

    monkeypatch.setattr(IndexHost, "_open_now", open_slowly)

    async def body(runtime: ServeRuntime) -> None:
        stop = asyncio.Event()

        async def ask() -> int:
            n_asked = 0
            while not stop.is_set():
                assert "loom" in await ids(runtime, "a loom")
                n_asked += 1
            return n_asked

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        await asyncio.sleep(0.3)
        (tmp_path / "old").mkdir()
        for name in ("catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm", "segments"):
            if (fabrics / name).exists():
                (fabrics / name).rename(tmp_path / "old" / name)
        await asyncio.sleep(0.5)  # the old index answers while there is nothing at the path
        for file in twin.iterdir():
            if file.name != "catalogue.sqlite":
                shutil.move(file, fabrics / file.name)
        shutil.move(twin / "catalogue.sqlite", fabrics / "catalogue.sqlite")
        await eventually(lambda: runtime.host("fabrics")._seen == catalog.signature(fabrics))
        await asyncio.sleep(0.3)
        stop.set()
        assert min(await asyncio.gather(*asking)) > 0

    run(config_of(fabrics), body)


def test_an_index_is_made_and_dropped_below_the_data_folder_only(fabrics: Path, tmp_path: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        await runtime.create("notes", CreateOptions(language="de"))
        assert runtime.names() == ["fabrics", "notes"]
        with pytest.raises(IndexExistsError):
            await runtime.create("notes", CreateOptions())
        with pytest.raises(NotAllowedError):
            await runtime.create("../evil", CreateOptions())
        with pytest.raises(UnknownModelError):
            await runtime.create("more", CreateOptions(model=str(fabrics)))
        await runtime.host("notes").write(NEW, idempotency_key=None, owner="")
        assert await ids(runtime, "weft", "notes") == ["new"]
        assert (await runtime.host("notes").info()).language == "de"
        with pytest.raises(NotAllowedError):
            await runtime.drop("fabrics")
        await runtime.drop("notes")
        assert runtime.names() == ["fabrics"]
        with pytest.raises(UnknownIndexError):
            runtime.host("notes")
        assert list((tmp_path / "data").iterdir()) == []

    run(config_of(fabrics, data_dir=tmp_path / "data"), body)


def test_a_read_only_server_refuses_writes(fabrics: Path) -> None:
    async def body(runtime: ServeRuntime) -> None:
        with pytest.raises(NotAllowedError, match="read-only"):
            await runtime.host("fabrics").write(NEW, idempotency_key=None, owner="")
        with pytest.raises(NotAllowedError):
            await runtime.create("notes", CreateOptions())

    run(config_of(fabrics, read_only=True), body)


def test_jobs_that_had_not_ended_run_after_a_restart(fabrics: Path) -> None:
    from plait.serve.runtime.jobs import StateFile

    config = config_of(fabrics)
    assert config.state_dir is not None
    state = StateFile(config.state_dir)
    state.add_job("left", "fabrics", NEW, "", None)
    state.begin_job("left")
    state.add_job("poison", "fabrics", NEW, "", None)
    state.begin_job("poison")
    state.begin_job("poison")
    state.close()

    async def body(runtime: ServeRuntime) -> None:
        assert (await done(runtime, "left")).state == "done"
        assert (await done(runtime, "poison")).state == "failed"

        async def is_visible() -> bool:
            return "new" in await ids(runtime, "shuttle")

        await eventually(is_visible, 5)

    run(config, body)


@pytest.mark.parametrize(("content", "level"), [(b"", logging.WARNING), (b"SQLite format 3\0" * 100, logging.ERROR)])
def test_an_index_that_is_not_complete_is_no_error_in_the_log(
    fabrics: Path, content: bytes, level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder has its catalogue some time before it is an index. It is tried again and again, and logged once."""
    monkeypatch.setattr("plait.serve.runtime.hosts.RETRY_SECONDS", 0.0)
    unfinished = fabrics.parent / "data" / "unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / CATALOGUE).write_bytes(content)

    async def body(runtime: ServeRuntime) -> None:
        host = runtime.host("unfinished")
        for _ in range(3):
            await host.refresh()
        with pytest.raises(UnavailableError):
            await host.info()

    run(config_of(fabrics, data_dir=fabrics.parent / "data"), body)
    records = [record for record in caplog.records if "index" in record.getMessage() and record.levelno > logging.INFO]
    assert [record.levelno for record in records] == [level]
