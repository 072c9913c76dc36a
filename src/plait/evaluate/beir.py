"""BEIR folders: a corpus, queries, and for each split the judgements of which documents answer which query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from plait.errors import InputError, SourceError
from plait.sources.lines import Line, opened, read_lines

Qrels = dict[str, dict[str, int]]  # query id -> document id -> how relevant; 0 is judged and not relevant


@dataclass(frozen=True, slots=True)
class BeirSet:
    """One split of a BEIR folder. Read the corpus with `plait.sources.documents_from([corpus])`."""

    path: Path
    split: str
    corpus: Path | None  # measuring an index does not need it
    queries: dict[str, str]  # those that are judged in this split, in the order of the file
    qrels: Qrels
    n_without_text: int  # judged queries that the queries file lacks; they are left out


def load_beir(path: str | Path, split: str = "test") -> BeirSet:
    """The queries and judgements of a split; files may end in .gz. InputError says what is missing."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"there is no folder {str(path)!r}; a BEIR folder has queries.jsonl and qrels/{split}.tsv")
    qrels = _read_qrels(_existing(path / "qrels", f"{split}.tsv", hint=_splits(path)))
    texts = read_queries(_existing(path, "queries.jsonl", hint="is this a BEIR folder?"))
    queries = {id: text for id, text in texts.items() if id in qrels}
    if not queries:
        raise InputError(f"{path}: none of the {len(qrels)} judged queries of split {split!r} is in the queries file")
    judged = {id: qrels[id] for id in queries}
    return BeirSet(path, split, _find(path, "corpus.jsonl"), queries, judged, len(qrels) - len(judged))


def _find(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _existing(folder: Path, name: str, *, hint: str) -> Path:
    file = _find(folder, name)
    if file is None:
        raise InputError(f"there is no {folder / name} (nor {name}.gz); {hint}")
    return file


def _splits(path: Path) -> str:
    names = sorted({file.name.split(".")[0] for file in path.glob("qrels/*.tsv*")})
    return f"the splits there are: {', '.join(names)}" if names else "is this a BEIR folder?"


def _lines(file: Path) -> list[Line]:
    lines = []
    try:
        with opened(file) as stream:
            for line in read_lines(stream, str(file)):
                if isinstance(line, SourceError):
                    raise line
                lines.append(line)
    except (OSError, EOFError) as error:
        raise SourceError(f"cannot read {file}: {error}") from error
    return lines


def read_queries(file: Path) -> dict[str, str]:
    """The queries of a file of JSON lines with `_id` and `text`, by id."""
    queries: dict[str, str] = {}
    for line in _lines(file):
        try:
            fields = json.loads(line.text)
            id, text = fields["_id"], fields["text"]
        except (ValueError, KeyError, TypeError):
            raise SourceError(f"{file}, line {line.number}: expected an object with '_id' and 'text'") from None
        if not isinstance(text, str) or isinstance(id, bool) or not isinstance(id, str | int):
            raise SourceError(
                f"{file}, line {line.number}: '_id' and 'text' must be text; got {id!r:.40}, {text!r:.40}"
            )
        queries[str(id)] = text
    return queries


def _read_qrels(file: Path) -> Qrels:
    """Three columns: query, document, score. The first line is a header, unless it has a number for a score."""
    qrels: Qrels = {}
    for line in _lines(file):
        columns = line.text.split("\t")
        try:
            query, document, score = columns
            relevance = int(float(score))
        except (ValueError, OverflowError):
            if line.number == 1:
                continue
            raise SourceError(
                f"{file}, line {line.number}: expected a query id, a document id and a whole number, with tabs "
                f"between; got {line.text:.60}"
            ) from None
        qrels.setdefault(query, {})[document] = relevance
    if not qrels:
        raise SourceError(f"{file} holds no judgements")
    return qrels
