"""LlamaIndex nodes to plait's documents and back. What only LlamaIndex has, such as relations between nodes, is kept in
one metadata field."""

from __future__ import annotations

from typing import Any

from llama_index.core.schema import BaseNode, ImageNode, IndexNode, MetadataMode, Node, TextNode

from plait.checks import shown
from plait.errors import DocumentError
from plait.integrations.filters.llama_index import EXTRA
from plait.integrations.opening import Content, hit_metadata, hit_text
from plait.records import Document, Hit, Metadata

CLASSES = {kind.class_name(): kind for kind in (TextNode, IndexNode, ImageNode, Node)}
NOT_KEPT = {"embedding", "metadata", "text", "text_resource", "class_name"}  # stored elsewhere, or made by plait


def to_plait(node: BaseNode) -> Document:
    if not isinstance(node, BaseNode):
        raise DocumentError(f"a vector store takes nodes; got {type(node).__name__}: {shown(node)}")
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    if not text.strip():
        raise DocumentError(f"node {node.node_id!r} has no text; plait stores texts: leave it out")
    if EXTRA in node.metadata:
        raise DocumentError(f"node {node.node_id!r}: the key {EXTRA!r} of metadata is reserved; rename it")
    extra = {
        "class": node.class_name(),
        "ref_doc_id": node.ref_doc_id,
        "fields": {key: value for key, value in node.model_dump(mode="json").items() if key not in NOT_KEPT},
        "empty": {key: True for key, value in node.metadata.items() if value == []},
    }
    return Document(node.node_id, text, metadata={**node.metadata, EXTRA: extra})


def from_plait(id: str, text: str, metadata: Metadata) -> BaseNode:
    """The node of a document; a text node if it was added otherwise."""
    plain = {key: value for key, value in metadata.items() if key != EXTRA}
    extra: dict[str, Any] | None = metadata.get(EXTRA)
    if extra is None:
        return TextNode(id_=id, text=text, metadata=plain)
    kind = CLASSES.get(extra.get("class", ""), TextNode)
    node: BaseNode = kind.from_dict({**extra.get("fields", {}), "metadata": plain})
    node.set_content(text)
    return node


def from_hit(hit: Hit, content: Content) -> BaseNode:
    """The node of a hit. With passages as content, its metadata also have title, headings and location, and the node
    says where the best passage is in the document."""
    if content == "document":
        return from_plait(hit.id, hit.text, hit.metadata)
    node = from_plait(hit.id, hit_text(hit, content), hit_metadata(hit))
    if isinstance(node, TextNode) and len(hit.passages) == 1:
        node.start_char_idx, node.end_char_idx = hit.span
    return node
