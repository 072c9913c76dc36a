"""`Limits`: what a request may ask for. They are checked before any work begins."""

from __future__ import annotations

from dataclasses import dataclass, fields

from plait.checks import shown
from plait.errors import ConfigError

MIN_BYTES_PER_SECOND = 1_000  # of an upload and of an answer; a client that is slower is cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of requests. A request beyond one of them gets status 413 (bytes) or 422."""

    max_body_bytes: int = 16_000_000  # of a request, other than an upload of JSON lines
    max_search_bytes: int = 1_000_000  # of a request that has no documents, texts to encode or embeddings
    max_held_bytes: int = 256_000_000  # of all bodies that a worker holds; beyond them requests get 429
    max_upload_bytes: int = 2_000_000_000  # of an upload of JSON lines
    max_line_bytes: int = 8_000_000  # of one line of an upload
    max_json_depth: int = 64  # nested arrays and objects
    max_values: int = 1_000_000  # of a body, or of a line of an upload; 21,000 where it has texts, queries or ids alone
    max_batch: int = 256  # queries of a search, texts to encode or to rerank, ids to get
    max_documents: int = 10_000  # in the body of one write that is not an upload
    max_query_chars: int = 20_000
    max_text_chars: int = 4_000_000  # of a document, and of a text to encode or to rerank
    max_k: int = 1_000
    max_window: int = 10_000  # of offset + k, and of window
    max_hits: int = 10_000  # queries times k
    max_passages: int = 100  # of each hit
    max_params: int = 100_000  # any number among the parameters of a mode
    max_candidates: int = 10_000
    max_filter_chars: int = 20_000
    max_page: int = 1_000  # documents on a page of a scroll
    max_errors_per_second: int = 20  # of a key or address, by each worker; answers to more wrong ones are delayed
    max_timeout: float = 60.0  # seconds that a request may ask for
    default_timeout: float = 30.0  # seconds of a request that does not say
    header_timeout: float = 10.0  # seconds to send the headers of a request
    body_timeout: float = 30.0  # seconds to send a body; of an upload, between two parts of it

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kind = float if field.name.endswith("timeout") else int
            is_number = isinstance(value, int | float) if kind is float else isinstance(value, int)
            if not is_number or isinstance(value, bool) or not 0 < value < 2**53:
                due = "a number above 0" if kind is float else "a whole number of at least 1"
                raise ConfigError(f"the limit {field.name} is {shown(value)}; it must be {due}")
