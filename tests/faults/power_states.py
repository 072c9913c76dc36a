"""Records every writing command, then cuts the power at every operation of it, in all the ways that a disk allows.

    python -m faults.power_states --states 2000

A command runs in a forked process, which records each write, truncation, new name, removal and sync of its files, those
of SQLite too; once alone, and once beside a reader, so that nothing is copied from SQLite's log when the writer ends.
Then states are sampled that the disk may have after a power cut at some operation: what was synced is there, and of the
rest any part (see `faults.power`). Each state must open, be sound, and hold what was there before the command or after
it; if the command had returned, what was there after it. A share of the states is crashed a second time, while a writer
recovers them. Ends with 1 if a state lost something, and says how to see it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import sqlite, workload
from faults.disk import Disk, installed
from faults.power import Image, Mark, Operation, Replay, Start, write_image
from faults.workload import PROJECTION, SPEC
from plait.cur import build
from plait.cur.build import CurConfig, build_cur
from plait.cur.index import open_cur
from plait.encode.load import EXTERNAL
from plait.index import open_index
from plait.storage.backup import backup
from plait.storage.check import check
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.files import text_index
from plait.storage.info import info
from plait.storage.repair import repair
from plait.storage.saved_settings import FittedWeights, TunedParams
from plait.storage.store import Store
from rerank.small_cross import WordScorer

BEGUN, RETURNED = "begun", "returned"
DOUBLE_SHARE = 0.02  # of the states: the power goes again while a writer recovers them
ANCHOR_QUERIES = [f"text of d{number}" for number in range(6)]
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A writing command on the index at `root / "index"`."""

    name: str
    run: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda _: None
    verify: Callable[[Path, Expected, bool], None] | None = None  # instead of comparing the facts of the index


@dataclass(slots=True)
class Expected:
    """The facts of the index before the command, between its commits, and after it."""

    before: Facts | None
    between: list[Facts] = field(default_factory=list)
    after: Facts | None = None


def facts(index: Path) -> Facts:
    """All that an index holds. It must be sound."""
    report = check(index)
    assert report.ok, f"check reports {report.problems}"
    with Store.open(index) as store:
        with store.snapshot() as snapshot:
            documents = workload.state_of(snapshot)
            projection = snapshot.projection
            directions = None if projection is None else projection.fitted.directions.tobytes()
        about = info(store)
        stored = open_cur(index)
        if stored is not None:
            stored.verify()
        return {
            "documents": documents,
            "fields": _indexed_fields(index),
            "tuned": about.tuned,
            "weights": about.weights,
            "projection": (about.format, about.wanted_projection, about.projection, directions),
            "cur": None if stored is None else (stored.docs.tolist(), stored.scores.tobytes(), stored.codes.tobytes()),
        }


def _indexed_fields(index: Path) -> list[tuple[str, ...]]:
    from plait.storage.field_indexes import read_columns

    with ReadTransaction(index / CATALOGUE) as view:
        return list(read_columns(view))


# -- the commands


def _create(root: Path) -> None:
    Store.create(root / "new" / "parents" / "index", fingerprint=EXTERNAL, spec=SPEC, properties={}).close()


def _verify_created(root: Path, _: Expected, returned: bool) -> None:
    path = root / "new" / "parents" / "index"
    if returned:
        assert facts(path)["documents"] == {}, "a new index has documents"
    workload.verify_made(path)


def _add(root: Path) -> None:
    documents = [{"id": f"n{number}", "text": f"new text of n{number}", "length": number} for number in range(5)]
    documents.append({"id": "d3", "text": "another text of d3"})
    with open_index(root / "index") as index:
        index.add_embeddings(documents, workload.embeddings_of(str(document["text"]) for document in documents))


def _delete(root: Path) -> None:
    with open_index(root / "index") as index:
        index.delete([f"d{number}" for number in range(0, 44, 2)])


def _update_metadata(root: Path) -> None:
    with open_index(root / "index") as index:
        ids = [document.id for document in index][::2]
        index.update_metadata({id: {"length": -number, "note": "new"} for number, id in enumerate(ids)})


def _merge(root: Path) -> None:
    with Store.open(root / "index") as store, store.writer() as writer:
        assert writer.merge(), "there was nothing to merge"


def _compact(root: Path) -> None:
    with open_index(root / "index", n_threads=1) as index:
        index.compact(retrain=True)


def _fit(root: Path) -> None:
    with Store.open(root / "index") as store, store.writer() as writer:
        assert writer.compact(projection=PROJECTION).dims == PROJECTION.dims, "no projection was fitted"


def _refit(root: Path) -> None:
    with Store.open(root / "index") as store, store.writer() as writer:
        report = writer.compact(encode=workload.encode)
        assert report.dims == PROJECTION.dims, "no projection was fitted"


def _backup(root: Path) -> None:
    backup(root / "index", root / "copy")


def _verify_backup(root: Path, expected: Expected, returned: bool) -> None:
    assert facts(root / "index") == expected.before, "a backup changed the index"
    if returned or (root / "copy").exists():
        assert facts(root / "copy") == expected.before, "the copy holds something else"
        workload.verify(root / "copy", [expected.before["documents"]])
        shutil.rmtree(root / "copy")
    backup(root / "index", root / "copy")
    assert facts(root / "copy") == expected.before, "the second copy holds something else"


def _damage(root: Path) -> None:
    """Of a segment, so that its documents are lost, and of the CUR index."""
    index = root / "index"
    _build_cur(root)
    for file in (sorted(index.glob("segments/*/dense.plait"))[-1], *index.glob("attachments/*/cur.plait")):
        content = bytearray(file.read_bytes())
        content[-20] ^= 1
        file.write_bytes(content)


def _repair(root: Path) -> None:
    repair(root / "index", rescue=root / "lost.jsonl")


def _verify_repair(root: Path, expected: Expected, returned: bool) -> None:
    assert expected.after is not None
    lost = {"d1"}
    if check(root / "index").ok:
        assert facts(root / "index") == expected.after, "the repaired index holds something else"
        assert _rescued(root / "lost.jsonl") == lost, "the texts of removed documents are lost"
        return
    assert not returned, "a repaired index is damaged"
    repair(root / "index", rescue=root / "again.jsonl")
    assert facts(root / "index") == expected.after, "the second repair left something else"
    assert _rescued(root / "again.jsonl") == lost, "the second repair lost texts"


def _rescued(file: Path) -> set[str]:
    import json

    return {json.loads(line)["id"] for line in file.read_bytes().splitlines()}


def _index_field(root: Path) -> None:
    with open_index(root / "index") as index:
        index.create_field_index("length")


def _tuned() -> TunedParams:
    return TunedParams(
        n_probe=3,
        n_candidates=30,
        n_code_scored=20,
        n_rescored=10,
        exhaustive=False,
        k=10,
        target_recall=0.9,
        recall_of="codes",
        recall=0.95,
        recall_in_codes=0.95,
        codes_recall=None,
        median_ms=1.0,
        exhaustive_ms=2.0,
        n_queries=10,
        queries="given",
        n_passages=46,
        date="2026-11-18",
    )


def _fitted() -> FittedWeights:
    return FittedWeights(
        fusion="rrf", weights={"dense": 1.0}, ndcg=0.5, default_ndcg=0.4, n_queries=9, data="x", date="2026-11-18"
    )


def _tune(root: Path) -> None:
    with Store.open(root / "index") as store, store.writer() as writer:
        writer.save_tuned_params(_tuned())


def _tune_fusion(root: Path) -> None:
    with Store.open(root / "index") as store, store.writer() as writer:
        writer.save_fusion_weights(_fitted())


def _tune_both(root: Path) -> None:
    _tune(root)
    _tune_fusion(root)


def _reset(root: Path) -> None:
    with open_index(root / "index") as index:
        index.reset_tuning()


def _build_cur(root: Path) -> None:
    with Store.open(root / "index") as store:
        build_cur(store, WordScorer(), ANCHOR_QUERIES, CurConfig(budget=12, k=3, n_anchors=5))


def _verify_cur(root: Path, expected: Expected, returned: bool) -> None:
    _compare_facts(root, expected, returned)
    _build_cur(root)  # goes on with the draft, whatever is left of it
    assert facts(root / "index") == expected.after, "a build that was resumed gave something else"


COMMANDS = [
    Command("create", _create, verify=_verify_created),
    Command("add", _add),
    Command("delete", _delete),
    Command("update metadata", _update_metadata),
    Command("merge", _merge),
    Command("compact", _compact),
    Command("fit", _fit),
    Command("refit", _refit, prepare=_fit),
    Command("backup", _backup, prepare=_build_cur, verify=_verify_backup),
    Command("repair", _repair, prepare=_damage, verify=_verify_repair),
    Command("field index", _index_field),
    Command("tune", _tune),
    Command("tune fusion", _tune_fusion),
    Command("reset", _reset, prepare=_tune_both),
    Command("cur build", _build_cur, verify=_verify_cur),
]


def _compare(root: Path, expected: Expected, returned: bool) -> None:
    _compare_facts(root, expected, returned)
    workload.verify(root / "index", [facts(root / "index")["documents"]])


def _compare_facts(root: Path, expected: Expected, returned: bool) -> None:
    allowed = [expected.after] if returned else [expected.before, *expected.between, expected.after]
    assert facts(root / "index") in allowed, "the index holds neither what it held before nor what it should hold after"


# -- recording


@dataclass(frozen=True, slots=True)
class Recording:
    start: Start
    operations: list[Operation]


def record(root: Path, act: Callable[[Path], object], *, beside_a_reader: bool = False) -> Recording:
    """Runs a command in a forked process and returns all that it did to the files below `root`."""
    file = root.with_name(f"{root.name}.record")
    child = os.fork()
    if not child:
        try:
            disk = Disk(root, None, recording=True)
            sqlite.install(disk)
            assert disk.record is not None
            with installed(disk):
                reader = _commit_beside_a_reader(root / "index") if beside_a_reader else None
                disk.record.marked(BEGUN)
                act(root)
                disk.record.marked(RETURNED)
                del reader
            file.write_bytes(pickle.dumps(Recording(disk.record.start, disk.record.operations)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the command failed while it was recorded"
    recording: Recording = pickle.loads(file.read_bytes())
    file.unlink()
    return recording


def _commit_beside_a_reader(index: Path) -> ReadTransaction:
    """Makes a commit that changes nothing, so that there is a log, and begins to read, so that it stays."""
    with Store.open(index) as store, store.writer() as writer:
        reader = ReadTransaction(index / CATALOGUE)
        writer.detach("none")
    return reader


@dataclass(slots=True)
class Tally:
    n_states: int = 0
    n_distinct: int = 0
    n_double: int = 0
    lost: list[str] = field(default_factory=list)


class PowerStates:
    """One small index, and the commands that are cut on copies of it."""

    def __init__(self, folder: Path, *, lying: bool = False, fail_fast: bool = False) -> None:
        self._folder, self._lying, self._fail_fast = folder, lying, fail_fast
        workload.merge_early()
        text_index.MIN_DOCUMENTS = 1
        build.BLOCK_PAIRS = 12 * len(ANCHOR_QUERIES)
        (folder / "base").mkdir()
        workload.make_base(folder / "base" / "index")

    def run(self, command: Command, n_states: int, seed: int) -> Tally:
        """Samples states of one command."""
        root, tally = self._fresh("root"), Tally()
        shutil.copytree(self._folder / "base", root, dirs_exist_ok=True)
        command.prepare(root)
        expected = self._expected(command, root)
        rng, copy = random.Random(f"{command.name} {seed}"), self._fresh("beside")
        shutil.copytree(root, copy, dirs_exist_ok=True)
        alone = record(root, command.run)
        if command.name == "create":
            self._sample(command, alone, expected, n_states, rng, tally)
            return tally
        self._sample(command, alone, expected, n_states // 2, rng, tally)
        beside = record(copy, command.run, beside_a_reader=True)
        self._sample(command, beside, expected, n_states - n_states // 2, rng, tally)
        return tally

    def _expected(self, command: Command, root: Path) -> Expected:
        copy = self._fresh("expected")
        shutil.copytree(root, copy, dirs_exist_ok=True)
        if command.name == "create":
            return Expected(None)
        expected = Expected(facts(copy / "index") if command.name != "repair" else None)
        command.run(copy)
        expected.after = facts(copy / "index")
        if command.name == "reset":
            assert expected.before is not None
            expected.between.append({**expected.before, "tuned": expected.after["tuned"]})
        return expected

    def _sample(
        self,
        command: Command,
        recording: Recording,
        expected: Expected,
        n_states: int,
        rng: random.Random,
        tally: Tally,
    ) -> None:
        replay = Replay(recording.start, recording.operations, lying=self._lying)
        n_operations, judged = len(recording.operations), set[tuple[bytes, bool]]()
        begun = recording.operations.index(Mark(BEGUN))
        # The last state is that of a command that has returned; it is worth a fifth of the samples.
        cuts = sorted(rng.randint(begun, n_operations) if rng.random() < 0.8 else n_operations for _ in range(n_states))
        for at in cuts:
            if tally.lost and self._fail_fast:
                return
            replay.advance(at)
            seed = rng.randrange(1 << 30)
            image, returned = replay.image(random.Random(seed)), RETURNED in replay.marks
            tally.n_states += 1
            key = (_digest(image), returned)
            if key in judged:
                continue
            judged.add(key)
            tally.n_distinct += 1
            where = f"{command.name}, after operation {at} of {n_operations}, seed {seed}"
            self._judge(command, image, expected, where, tally, returned=returned)
            if rng.random() < DOUBLE_SHARE:
                self._crash_again(command, image, expected, where, rng, tally, returned=returned)

    def _judge(
        self, command: Command, image: Image, expected: Expected, where: str, tally: Tally, *, returned: bool
    ) -> None:
        root = self._fresh("image")
        write_image(image, root)
        try:
            (command.verify or _compare)(root, expected, returned)
        except Exception as error:
            tally.lost.append(f"{where}: {type(error).__name__}: {error}")
            print(tally.lost[-1][:1000], file=sys.stderr, flush=True)

    def _crash_again(
        self,
        command: Command,
        image: Image,
        expected: Expected,
        where: str,
        rng: random.Random,
        tally: Tally,
        *,
        returned: bool,
    ) -> None:
        """Opens a writer on what a power cut left, and cuts the power again."""
        root = self._fresh("again")
        write_image(image, root)
        index = root / ("new/parents/index" if command.name == "create" else "index")
        try:
            Store.open(index).close()
        except Exception:
            return  # a creation that was cut; the first judgement has created it again
        recording = record(root, lambda _: Store.open(index).writer().close())
        replay = Replay(recording.start, recording.operations, lying=self._lying)
        for at in sorted(rng.randint(0, len(recording.operations)) for _ in range(4)):
            replay.advance(at)
            tally.n_double += 1
            self._judge(command, replay.image(rng), expected, f"{where}, cut again at {at}", tally, returned=returned)

    def _fresh(self, name: str) -> Path:
        path = self._folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path


def _digest(image: Image) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path, content in image.items():
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.digest()


def main() -> None:
    names = [command.name for command in COMMANDS]
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--states", type=int, default=2000, help="of each command")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--commands", nargs="+", choices=names, default=names)
    asked.add_argument("--fail-fast", action="store_true", help="end each command at its first loss")
    asked.add_argument("--lying", action="store_true", help="syncs do nothing: states must be lost")
    given = asked.parse_args()
    memory = Path("/dev/shm")
    commands = [command for command in COMMANDS if command.name in given.commands]
    with tempfile.TemporaryDirectory(prefix="plait-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        states = PowerStates(Path(folder), lying=given.lying, fail_fast=given.fail_fast)
        tallies = {}
        for command in commands:
            tallies[command.name] = tally = states.run(command, given.states, given.seed)
            counts = f"{tally.n_states:,} states, {tally.n_distinct:,} distinct, {len(tally.lost)} lost"
            print(f"{command.name}: {counts}", flush=True)
    lost = [line for tally in tallies.values() for line in tally.lost]
    n_double = sum(tally.n_double for tally in tallies.values())
    print(f"{len(tallies)} commands x {given.states:,} power states: {len(lost)} lost; {n_double} cut twice")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
