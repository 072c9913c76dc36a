"""Live encoders: models that other libraries or servers run, as encoders and rerankers of an index, without conversion.

    from sentence_transformers import SentenceTransformer
    from plait.adapters import SentenceTransformerEncoder

    encoder = SentenceTransformerEncoder(SentenceTransformer("BAAI/bge-small-en-v1.5"))
    index = plait.open("my-index", encoder=encoder, create=True)

No library is imported here: an adapter takes an object that the caller has loaded.
"""

from plait.adapters.bge_m3 import BGEM3Encoder
from plait.adapters.cross_encoders import CrossEncoderScorer, EndpointScorer, FlagRerankerScorer, FunctionScorer
from plait.adapters.endpoint import EndpointEncoder
from plait.adapters.function import FunctionEncoder
from plait.adapters.pylate import PyLateEncoder
from plait.adapters.sentence_transformer import SentenceTransformerEncoder

__all__ = [
    "BGEM3Encoder",
    "CrossEncoderScorer",
    "EndpointEncoder",
    "EndpointScorer",
    "FlagRerankerScorer",
    "FunctionEncoder",
    "FunctionScorer",
    "PyLateEncoder",
    "SentenceTransformerEncoder",
]
