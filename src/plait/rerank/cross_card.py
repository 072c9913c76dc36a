"""`CrossCard`: the `plait.json` of a cross-encoder. An unknown key is an error, as in the card of an encoder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from plait.encode.model_card import (
    CARD_NAME,
    CROSS_KIND,
    FORMAT,
    FileRecord,
    GraphRecord,
    Section,
    file_record,
    graph_record,
    read_json,
)
from plait.errors import ModelError

ACTIVATIONS = NO_ACTIVATION, SIGMOID = ("", "sigmoid")
HEADS = ("cls", "emb", "maxsim", "classifier")


@dataclass(frozen=True, slots=True)
class Markers:
    """[EMB]-CE: special tokens after query and document; the score is the inner product of their outputs."""

    query: str
    document: str


@dataclass(frozen=True, slots=True)
class PairFormat:
    """The input format of pairs: `[CLS] query [SEP] document [SEP]`, or another format of the model's tokeniser."""

    length: int  # maximum number of tokens, special tokens included
    query_length: int  # tokens that are reserved for the query; the document gets the rest
    query_prefix: str = ""
    document_prefix: str = ""
    # If not 0: the maximum number of document tokens, and `query_length` is the maximum of query tokens. A text is then
    # truncated alike in every pair, so that states a model computes for one text alone can be cached.
    document_length: int = 0

    def to_json(self) -> dict[str, object]:
        """The fields in the card; a `document_length` of 0 is left out."""
        return {key: value for key, value in asdict(self).items() if key != "document_length" or value}


@dataclass(frozen=True, slots=True)
class CrossCard:
    """The `plait.json` of a cross-encoder."""

    name: str
    version: str
    head: str  # cls: pooler and one output; emb: two markers; maxsim: nearest tokens; classifier: that of the graph
    pair: PairFormat
    markers: Markers | None
    weights: str  # sha256 of the unquantized weights, equal for all precisions
    tokenizer: FileRecord
    precisions: Mapping[str, GraphRecord]
    languages: tuple[str, ...]
    licence: str
    attribution: str
    source: str
    made: str
    activation: str = ""  # of the graph's score: "" is none, or "sigmoid"

    @property
    def fingerprint(self) -> str:
        """The name and a short hash of the weights, the tokeniser and the pair format; equal for all precisions."""
        identity = {
            "weights": self.weights,
            "tokenizer": self.tokenizer.sha256,
            "pair": self.pair.to_json(),
            "markers": asdict(self.markers) if self.markers else None,
        }
        if self.activation:
            identity["activation"] = self.activation
        text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
        return f"{self.name}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def to_json(self) -> dict[str, object]:
        """The JSON object that `parse_cross_card` reads."""
        fields = asdict(self) | {"pair": self.pair.to_json(), "languages": list(self.languages)}
        fields["precisions"] = {name: record.to_json() for name, record in self.precisions.items()}
        if not self.activation:
            del fields["activation"]
        return {"format": FORMAT, "kind": CROSS_KIND, **fields}


def read_cross_card(folder: Path) -> CrossCard:
    """The card in the folder of a cross-encoder; ModelError if there is none, or if it is of another kind of model."""
    path = folder / CARD_NAME
    if not folder.is_dir():
        raise ModelError(f"there is no model folder {folder}; give the path of a folder that holds {CARD_NAME}")
    try:
        raw = read_json(path)
    except FileNotFoundError:
        files = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise ModelError(
            f"{folder} is not the folder of a cross-encoder: it has no {CARD_NAME}, only {files}; "
            f"docs/guides/cross-encoders.md shows how to convert a transformers reranker"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}; fetch or build the model again") from error
    return parse_cross_card(raw, str(path))


def parse_cross_card(raw: object, where: str) -> CrossCard:
    """The card from parsed JSON; `where` names its source in messages."""
    if isinstance(raw, dict) and "kind" not in raw:
        raise ModelError(f"{where} is the card of an encoder; a reranker needs a card of kind {CROSS_KIND!r}")
    top = Section(raw, where)
    top.take_one_of("kind", (CROSS_KIND,))
    version = top.take("format", int)
    if version != FORMAT:
        raise ModelError(
            f"{where} has format {version}, and this plait reads format {FORMAT}; "
            f"{'upgrade plait' if version > FORMAT else 'build the model again'}"
        )
    pair, markers = top.section("pair"), top.section_or_none("markers")
    card = CrossCard(
        name=top.take("name", str),
        version=top.take("version", str),
        head=top.take_one_of("head", HEADS),
        pair=PairFormat(
            length=pair.take_count("length"),
            query_length=pair.take_count("query_length"),
            query_prefix=pair.take("query_prefix", str),
            document_prefix=pair.take("document_prefix", str),
            document_length=pair.take_or("document_length", default=0),
        ),
        markers=Markers(markers.take("query", str), markers.take("document", str)) if markers else None,
        weights=top.take("weights", str),
        tokenizer=file_record(top.section("tokenizer")),
        precisions=top.each_section("precisions", graph_record),
        languages=top.take_strings("languages"),
        licence=top.take("licence", str),
        attribution=top.take("attribution", str),
        source=top.take("source", str),
        made=top.take("made", str),
        activation=top.take_one_of_or("activation", ACTIVATIONS),
    )
    for section in (pair, markers, top):
        if section is not None:
            section.close()
    if (card.head == "emb") != (card.markers is not None):
        raise ModelError(f"{where} has the head {card.head!r} and markers {card.markers}; markers belong to emb alone")
    if card.pair.document_length < 0:
        raise ModelError(f"{where} gives the document {card.pair.document_length} tokens; it must be 0 or more")
    if card.pair.query_length >= card.pair.length:
        raise ModelError(
            f"{where} gives the query {card.pair.query_length} of {card.pair.length} tokens, which leaves none for the "
            f"document"
        )
    return card
